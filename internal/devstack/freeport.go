package devstack

import (
	"fmt"
	"net"
	"runtime"
)

// startAttempts bounds how often a server is started on a new port because it
// ended at once. Between freePort and the server's own bind another process can
// take the port.
const startAttempts = 3

// freePort returns a TCP port of 127.0.0.1 on which nothing listens.
func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("devstack: find a free port: %w", err)
	}
	defer listener.Close()
	if runtime.GOOS == "linux" {
		// Linux may hand out the same port again at once. A connection closed by
		// the accepting side stays in TIME_WAIT for a minute; for that long nobody
		// else gets the port from a bind to 0, but a bind by number still works.
		client, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			return 0, fmt.Errorf("devstack: reserve a free port: %w", err)
		}
		defer client.Close()
		accepted, err := listener.Accept()
		if err != nil {
			return 0, fmt.Errorf("devstack: reserve a free port: %w", err)
		}
		accepted.Close()
	}
	return listener.Addr().(*net.TCPAddr).Port, nil
}
