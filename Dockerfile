# An image with vsehub for a CPU, or for NVIDIA's GPUs:
#
#   docker build --tag vsehub .
#   docker build --tag vsehub:gpu --build-arg DEVICE=gpu .
#   docker run --rm --volume "$PWD:/work" --user "$(id -u):$(id -g)" vsehub rerank queries=captions.npy items=images.npy
#   docker run --rm --gpus all --shm-size 8g --volume "$PWD:/work" --user "$(id -u):$(id -g)" vsehub:gpu train
#
# The CUDA libraries come with torch; the host needs NVIDIA's driver and container toolkit. Workers that load data share
# memory, of which Docker gives 64 MB unless --shm-size asks for more.
ARG PYTHON=3.13

FROM python:${PYTHON}-slim AS build
# cpu or gpu; further extras, such as EXTRAS=wandb,timm; the build of torch (see release/image.sh).
ARG DEVICE=cpu
ARG EXTRAS=
COPY . /source
RUN /source/release/image.sh /source /opt/vsehub "${DEVICE}" "${EXTRAS}"

FROM python:${PYTHON}-slim
# Caches and keys lie in the home folder, which a user given by --user may write too.
RUN useradd --create-home vsehub && chmod 1777 /home/vsehub && install --directory --owner vsehub /work
COPY --from=build /opt/vsehub /opt/vsehub
# USER names a user of --user, who has no account.
ENV PATH=/opt/vsehub/bin:$PATH HOME=/home/vsehub USER=vsehub
USER vsehub
WORKDIR /work
ENTRYPOINT ["vsehub"]
CMD ["--help"]
