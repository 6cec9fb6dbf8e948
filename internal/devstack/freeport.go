package devstack

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// startAttempts bounds how often a server is started on a new port because it
// ended at once. Between freePort and the server's own bind another process can
// take the port.
const startAttempts = 3

// Ports that freePort takes. Above them begin those that systems give to outgoing
// connections (from 32768 on Linux, from 49152 elsewhere): such a one can sit on the
// port of a server that is down for a moment, even be connected to itself there.
const (
	firstPort = 20000
	lastPort  = 32767
)

// freePort returns a TCP port of 127.0.0.1 on which nothing listens. It is a random
// one, so that two processes which ask at once hardly ever get the same.
func freePort() (int, error) {
	var err error
	for range 100 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		var listener net.Listener
		if listener, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			return port, listener.Close()
		}
	}
	return 0, fmt.Errorf("devstack: find a free port: %w", err)
}
