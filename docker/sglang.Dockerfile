# hsparity and SGLang, for CPUs or for CUDA:
#
#   docker build -f docker/sglang.Dockerfile -t hsparity-sglang:cpu  .
#   docker build -f docker/sglang.Dockerfile -t hsparity-sglang:cuda --build-arg DEVICE=cuda .
#
# On CUDA hsparity is installed inside SGLang's own environment. On a CPU SGLang goes into a managed environment,
# because it needs a stub in place of the CUDA driver there, and only a managed environment may carry one.
ARG PYTHON=3.11
FROM python:${PYTHON}-slim-bookworm

ARG DEVICE=cpu
ARG PIP_EXTRA_INDEX_URL
ENV PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    XDG_CACHE_HOME=/opt/cache

# A compiler, for the stub and because Triton builds kernels on the machine they run on; libnuma for the CPU workers.
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc g++ libc6-dev libnuma1 \
    && rm -rf /var/lib/apt/lists/*

# The exact versions hsparity was tried with.
COPY hsparity/engines/locks /src/hsparity/engines/locks
RUN case "${DEVICE}" in \
      cpu) ;; \
      cuda) pip install --no-deps -r /src/hsparity/engines/locks/sglang.txt ;; \
      *) echo "DEVICE is cpu or cuda, not ${DEVICE}" >&2; exit 1 ;; \
    esac

WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY probes probes
COPY hsparity hsparity
RUN pip install . \
    && if [ "${DEVICE}" = cpu ]; then hsparity engines install sglang; fi

VOLUME ["/captures"]
WORKDIR /captures
ENTRYPOINT ["hsparity"]
CMD ["--help"]
