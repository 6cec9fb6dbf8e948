package devstack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/jackc/pgx/v5"
	"go.temporal.io/api/enums/v1"
)

// Options says what to start. The zero value starts both servers, without UI.
type Options struct {
	// Log receives progress lines for people. Nil means none. Writes do not
	// overlap.
	Log io.Writer
	// TemporalAddress is the host:port of a server to use instead of starting one.
	// It must have the namespace already. UI, UIPort and SearchAttributes then have
	// no effect.
	TemporalAddress string
	// DatabaseURL is the Postgres to use instead of starting one.
	DatabaseURL string
	// Namespace is created on a server that we start. Empty means "default".
	Namespace string
	// UI serves Temporal's web UI too.
	UI bool
	// UIPort is where; it must be free. Zero means a free one.
	UIPort int
	// SearchAttributes are registered in every namespace: name to type.
	SearchAttributes map[string]enums.IndexedValueType
}

// Stack is a Temporal server and a Postgres that are ready for use.
type Stack struct {
	// TemporalAddress of the gRPC frontend, as host:port.
	TemporalAddress string
	// UIURL of the web UI. Empty without UI, and for a server we did not start.
	UIURL string
	// Namespace exists on the Temporal server.
	Namespace string
	// DatabaseURL connects to Postgres with the right to create databases, if we
	// started it.
	DatabaseURL string

	stops []func() error
	once  sync.Once
	err   error
}

// Start starts what opts does not name, both at the same time, and returns when
// both are ready. A server that opts names must answer within seconds. ctx
// bounds the start, not the life of the servers. On an error whatever has
// started is stopped again.
func Start(ctx context.Context, opts Options) (*Stack, error) {
	if opts.Log != nil {
		opts.Log = &lockedWriter{w: opts.Log}
	}
	if opts.Namespace == "" {
		opts.Namespace = defaultNamespace
	}
	// When one fails the other must not go on, for minutes if it builds.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	var temporal, postgres Stack
	errs := make(chan error)
	go func() { errs <- temporal.startTemporal(ctx, opts) }()
	go func() { errs <- postgres.startPostgres(ctx, opts) }()
	var first error // the second is its consequence
	for range 2 {
		if err := <-errs; err != nil && first == nil {
			first = err
			cancel()
		}
	}

	stack := &Stack{
		TemporalAddress: temporal.TemporalAddress,
		UIURL:           temporal.UIURL,
		Namespace:       opts.Namespace,
		DatabaseURL:     postgres.DatabaseURL,
		stops:           append(temporal.stops, postgres.stops...),
	}
	if first != nil {
		return nil, errors.Join(first, stack.Stop())
	}
	return stack, nil
}

func (s *Stack) startTemporal(ctx context.Context, opts Options) error {
	if opts.TemporalAddress != "" {
		s.TemporalAddress = opts.TemporalAddress
		return waitTemporal(ctx, opts.TemporalAddress, opts.Namespace, existingReady, nil)
	}
	server, err := StartTemporal(ctx, TemporalOptions{
		Log: opts.Log, Namespace: opts.Namespace, UI: opts.UI, UIPort: opts.UIPort, SearchAttributes: opts.SearchAttributes,
	})
	if err != nil {
		return err
	}
	s.TemporalAddress, s.UIURL, s.stops = server.Address, server.UIURL, append(s.stops, server.Stop)
	return nil
}

func (s *Stack) startPostgres(ctx context.Context, opts Options) error {
	if opts.DatabaseURL != "" {
		s.DatabaseURL = opts.DatabaseURL
		return pingPostgres(ctx, opts.DatabaseURL)
	}
	server, err := StartPostgres(ctx, PostgresOptions{Log: opts.Log})
	if err != nil {
		return err
	}
	s.DatabaseURL, s.stops = server.URL, append(s.stops, server.Stop)
	return nil
}

func pingPostgres(ctx context.Context, databaseURL string) error {
	ctx, cancel := context.WithTimeout(ctx, existingReady)
	defer cancel()
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return fmt.Errorf("devstack: existing Postgres: %w", err)
	}
	return conn.Close(ctx)
}

// Stop ends the servers that Start started. Further calls do nothing and return
// the same error.
func (s *Stack) Stop() error {
	s.once.Do(func() {
		for _, stop := range s.stops {
			s.err = errors.Join(s.err, stop())
		}
	})
	return s.err
}
