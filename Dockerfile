# The reference worker and the operator's CLI, as static binaries without a system
# around them.
FROM golang:1.26.8 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ENV CGO_ENABLED=0
RUN go build -trimpath -ldflags="-s -w" -o /out/worker ./worker \
 && go build -trimpath -ldflags="-s -w" -o /out/temporal-deadletter ./cmd/temporal-deadletter

FROM scratch
# For Temporal and Postgres over TLS.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/ /usr/local/bin/
ENV PATH=/usr/local/bin
USER 65532:65532
ENTRYPOINT ["worker"]
