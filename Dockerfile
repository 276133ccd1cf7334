# The image contains the command patchlog as a static binary. The command runs as an unprivileged
# user.
#
# The volume /data contains the databases: docker run -v sessions:/data IMAGE sessions
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o /out/patchlog ./cmd/patchlog && \
    mkdir /out/data

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/patchlog /patchlog
COPY --from=build --chown=65532:65532 /out/data /data
USER 65532:65532
WORKDIR /data
VOLUME /data
ENTRYPOINT ["/patchlog"]
CMD ["help"]
