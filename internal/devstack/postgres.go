package devstack

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// postgresReady bounds the wait for a started Postgres. Recovery after Crash is
// the longest, and still seconds unless the machine has other things to do.
const postgresReady = 5 * time.Minute

// PostgresOptions says how to start Postgres. The zero value works.
type PostgresOptions struct {
	// Log receives progress lines for people. Nil means none.
	Log io.Writer
}

// Postgres is a running throw-away cluster. Its methods may be called
// concurrently.
type Postgres struct {
	// URL connects as the superuser to the database "postgres", over TCP on
	// 127.0.0.1 and with a random password. It stays valid over Crash and Restart.
	URL string

	binaries string
	as       *account
	dir      *tempDir
	port     int

	mu      sync.Mutex
	running *process // nil after Crash and after Stop
	stopped bool
}

// StartPostgres makes a new cluster and starts it. It returns when Postgres
// accepts connections. ctx bounds the start, not the life of the server. On an
// error nothing is left, neither processes nor files.
//
// The server does not wait for the disk (fsync is off), so it is fast, and its
// data does not survive a crash of the machine. What was committed does survive
// Crash: synchronous_commit stays on, or an immediate stop would lose the last
// commits.
func StartPostgres(ctx context.Context, opts PostgresOptions) (*Postgres, error) {
	password := rand.Text()
	return startPostgres(ctx, opts, password, func(p *Postgres) error { return p.initdb(ctx, password) })
}

// startPostgres starts a server on the data folder that fill makes.
func startPostgres(ctx context.Context, opts PostgresOptions, password string, fill func(*Postgres) error) (*Postgres, error) {
	began := time.Now()
	binaries, err := findPostgres(postgresFolders)
	if err != nil {
		return nil, err
	}
	dir, as, err := unprivilegedDir("pg")
	if err != nil {
		return nil, err
	}
	p := &Postgres{binaries: binaries, as: as, dir: dir}
	err = fill(p)
	if err == nil {
		err = p.start(ctx, password)
	}
	if err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	say(opts.Log, "Postgres is ready on 127.0.0.1:%d (%s, from %s)", p.port, time.Since(began).Round(time.Millisecond), binaries)
	return p, nil
}

// start starts the server on the first free port that nobody takes before it.
func (p *Postgres) start(ctx context.Context, password string) error {
	for attempt := 1; ; attempt++ {
		port, err := freePort()
		if err != nil {
			return err
		}
		p.port = port
		p.URL = (&url.URL{
			Scheme:   "postgres",
			User:     url.UserPassword("postgres", password),
			Host:     net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
			Path:     "/postgres",
			RawQuery: "sslmode=disable",
		}).String()
		err = p.run(ctx)
		if attempt == startAttempts || !errors.Is(err, errEnded) {
			return err
		}
	}
}

func (p *Postgres) initdb(ctx context.Context, password string) error {
	passwordFile := filepath.Join(p.dir.path, "password")
	if err := os.WriteFile(passwordFile, []byte(password+"\n"), 0o600); err != nil {
		return fmt.Errorf("devstack: initdb: %w", err)
	}
	if p.as != nil {
		if err := os.Chown(passwordFile, int(p.as.uid), int(p.as.gid)); err != nil {
			return fmt.Errorf("devstack: initdb: %w", err)
		}
	}
	// Locale C is on every system and sorts the same on all of them.
	return p.toEnd(ctx, "initdb",
		"--pgdata="+p.data(), "--username=postgres", "--pwfile="+passwordFile, "--auth=scram-sha-256",
		"--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions")
}

// toEnd runs one of the cluster's binaries until it ends, which must be with success.
func (p *Postgres) toEnd(ctx context.Context, name string, args ...string) error {
	running, err := p.command(name, "KILL", args...).start()
	if err != nil {
		return err
	}
	select {
	case <-running.done:
		if running.err != nil {
			return running.ended()
		}
		return nil
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("devstack: %s: %w", name, context.Cause(ctx)), running.stop(running.stopSignal))
	}
}

// run starts the server on p.port and returns when it accepts connections.
func (p *Postgres) run(ctx context.Context) error {
	settings := map[string]string{
		"listen_addresses":        "127.0.0.1",
		"port":                    strconv.Itoa(p.port),
		"unix_socket_directories": "",
		"max_connections":         "200",
		"fsync":                   "off",
		"full_page_writes":        "off",
	}
	args := []string{"-D", p.data()}
	for name, value := range settings {
		args = append(args, "-c", name+"="+value)
	}
	server, err := p.command("postgres", "QUIT", args...).start()
	if err != nil {
		return err
	}
	if err := p.waitReady(ctx, server); err != nil {
		return errors.Join(err, server.stop("QUIT"))
	}
	p.running = server
	return nil
}

func (p *Postgres) waitReady(ctx context.Context, server *process) error {
	ctx, cancel := context.WithTimeoutCause(ctx, postgresReady, fmt.Errorf("not ready after %s", postgresReady))
	defer cancel()
	retry := time.NewTicker(25 * time.Millisecond)
	defer retry.Stop()
	for {
		// Our own server alone knows the password, so a connection proves that no
		// other server took the port.
		conn, err := pgx.Connect(ctx, p.URL)
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-server.done:
			return server.ended()
		case <-ctx.Done():
			return fmt.Errorf("devstack: start postgres: %w; last try: %w", context.Cause(ctx), err)
		case <-retry.C:
		}
	}
}

func (p *Postgres) data() string { return filepath.Join(p.dir.path, "data") }

// command runs one of the cluster's binaries in its folder.
func (p *Postgres) command(name, stopSignal string, args ...string) command {
	return command{
		name: name, path: filepath.Join(p.binaries, name), args: args,
		// Nothing of ours: PGDATA, PGPORT and their like would change the server.
		env: []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "HOME=" + p.dir.path},
		dir: p.dir, as: p.as, stopSignal: stopSignal,
	}
}

// CreateDatabase makes an empty database and returns its URL, so that tests
// which run in parallel each have their own.
func (p *Postgres) CreateDatabase(ctx context.Context, name string) (string, error) {
	return CreateDatabase(ctx, p.URL, name)
}

// Crash stops Postgres at once, as a failing server would: clients lose their
// connections, nothing is flushed, the data stays for Restart. It is an error if
// Postgres is not running.
func (p *Postgres) Crash() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running == nil {
		return errors.New("devstack: crash postgres: it is not running")
	}
	err := p.running.stop("QUIT")
	p.running = nil
	return err
}

// Restart starts Postgres after Crash, on the same port and data, and returns
// when it accepts connections. It is an error if Postgres runs or is stopped for
// good. After a failed Restart it may be called again.
func (p *Postgres) Restart(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.stopped:
		return errors.New("devstack: restart postgres: it was stopped, its data is gone")
	case p.running != nil:
		return errors.New("devstack: restart postgres: it is running")
	}
	return p.run(ctx)
}

// Stop ends Postgres and removes its data. It takes a fraction of a second, and
// seconds at most. Further calls do nothing and return nil.
func (p *Postgres) Stop() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return nil
	}
	p.stopped = true
	var err error
	if p.running != nil {
		// Immediate: the data is thrown away, so there is nothing to flush.
		err = p.running.stop("QUIT")
		p.running = nil
	}
	return errors.Join(err, p.dir.remove())
}
