"""First files of a user: a manifest for data that exists (`init`), an operator with its test (`new-operator`)."""
