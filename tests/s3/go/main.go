// A server of the S3 protocol over a folder, for tests: versitygw with its POSIX backend, and nothing else of it.
//
//	s3 ADDRESS FOLDER
//
// FOLDER/buckets has a folder for each bucket, FOLDER/attributes what is kept about their objects. Keys come from the
// environment, as clients have them.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
)

func main() {
	if err := serve(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(address, folder string) error {
	attributes := filepath.Join(folder, "attributes")
	store, err := meta.NewSideCar(attributes)
	if err != nil {
		return err
	}
	backend, err := posix.New(filepath.Join(folder, "buckets"), store, posix.PosixOpts{SideCarDir: attributes, Concurrency: 64})
	if err != nil {
		return err
	}
	stopped, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	return embedgw.RunVersityGW(stopped, backend, &embedgw.Config{
		RootUserAccess:    os.Getenv("AWS_ACCESS_KEY_ID"),
		RootUserSecret:    os.Getenv("AWS_SECRET_ACCESS_KEY"),
		Ports:             []string{address},
		MaxConnections:    1000,
		MaxRequests:       1000,
		MultipartMaxParts: 10000,
		KeepAlive:         true,
		HealthPath:        "/health",
		Quiet:             true,
	})
}
