# Two images from the lock file: `docker build --target operator .` and `docker build --target spark .`
# Where there is no Docker or no registry, `images/build.py` builds this same file (docs/run/install.md).
#
# Both run as uid 10001, or any other, on a read-only root file system with a writable /tmp; they need no network to start.
ARG BASE=docker.io/library/debian:bookworm-slim
ARG UV=ghcr.io/astral-sh/uv:0.13.9

FROM ${UV} AS uv

FROM ${BASE} AS system
COPY images/install-system.sh /build/images/
RUN /build/images/install-system.sh
# Kernels are compiled for any CPU of the architecture (docs/decisions/0026), so that those of the image fit every node.
ENV PATH=/usr/local/bin:/opt/streamtopology/bin:/usr/bin:/bin HOME=/tmp USER=streamtopology LANG=C.UTF-8 \
    NUMBA_CACHE_DIR=/tmp/kernels NUMBA_CPU_NAME=generic NUMBA_CPU_FEATURES="" \
    MPLCONFIGDIR=/tmp/matplotlib PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1

# Our own code as wheels; of this stage only /wheels is used.
FROM system AS wheels
COPY images/lent.sh images/build-wheels.sh /build/images/
COPY pyproject.toml uv.lock LICENSE /build/
COPY routing /build/routing
COPY spark-jobs /build/spark-jobs
COPY operator /build/operator
COPY lab /build/lab
RUN --mount=type=bind,from=uv,source=/uv,target=/usr/local/bin/uv \
    /build/images/build-wheels.sh

# Packages by the lock file alone are installed before our own code: a change of code rebuilds only thin layers.
FROM system AS locked
COPY images/lent.sh images/install-packages.sh images/install-own.sh images/streamtopology /build/images/
COPY pyproject.toml uv.lock /build/
COPY routing/pyproject.toml /build/routing/
COPY spark-jobs/pyproject.toml /build/spark-jobs/
COPY operator/pyproject.toml /build/operator/
COPY lab/pyproject.toml /build/lab/

FROM locked AS data-plane
COPY images/install-java.sh /build/images/
RUN /build/images/install-java.sh
RUN --mount=type=bind,from=uv,source=/uv,target=/usr/local/bin/uv \
    /build/images/install-packages.sh --package streamtopology --extra kubernetes --extra delta --extra iceberg --extra traces
COPY --from=wheels /wheels /build/wheels
RUN --mount=type=bind,from=uv,source=/uv,target=/usr/local/bin/uv \
    /build/images/install-own.sh streamtopology streamtopology_routing streamtopology

# The kernels that both images have; of this stage nothing else is used. The lab's `simulate` compiles the planners'.
FROM data-plane AS kernels
RUN --mount=type=bind,from=uv,source=/uv,target=/usr/local/bin/uv \
    /build/images/install-own.sh streamtopology streamtopology_lab
COPY images/compile-kernels.sh images/kernels.yaml /build/images/
COPY examples/data/trades /build/trades
RUN /build/images/compile-kernels.sh

FROM data-plane AS spark
COPY --from=kernels /opt/streamtopology/kernels /opt/streamtopology/kernels
USER 10001:10001
WORKDIR /tmp
ENTRYPOINT ["tini", "--"]
CMD ["streamtopology", "--help"]

FROM locked AS operator
RUN --mount=type=bind,from=uv,source=/uv,target=/usr/local/bin/uv \
    /build/images/install-packages.sh --package streamtopology-operator --extra traces
COPY --from=wheels /wheels /build/wheels
RUN --mount=type=bind,from=uv,source=/uv,target=/usr/local/bin/uv \
    /build/images/install-own.sh streamtopology-operator streamtopology_routing streamtopology_operator
# It plans with the same code from the same lock file: same kernels.
COPY --from=kernels /opt/streamtopology/kernels /opt/streamtopology/kernels
USER 10001:10001
WORKDIR /tmp
ENTRYPOINT ["tini", "--"]
CMD ["streamtopology-operator"]
