package devstack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// poolerReady bounds the wait for a started PgBouncer.
const poolerReady = time.Minute

// PoolerOptions says how to start PgBouncer.
type PoolerOptions struct {
	// Path is the program.
	Path string
	// ServerURL names the Postgres server, with a user and a password, as a URL. Every
	// database of it can be had through the pooler.
	ServerURL string
	// PoolSize is how many server connections there are for each database.
	PoolSize int
	// Settings are further lines of section [pgbouncer].
	Settings map[string]string
	// Log receives progress lines for people. Nil means none.
	Log io.Writer
}

// Pooler is a running PgBouncer in transaction mode.
type Pooler struct {
	server  *url.URL
	port    int
	dir     *tempDir
	running *process
}

// StartPooler starts PgBouncer and returns when it passes on connections. ctx bounds
// the start, not the life of the pooler. On an error nothing is left.
func StartPooler(ctx context.Context, opts PoolerOptions) (*Pooler, error) {
	server, err := url.Parse(opts.ServerURL)
	if err != nil || server.User == nil {
		return nil, errors.New("devstack: start pgbouncer: the server's URL must have a user and a password")
	}
	dir, as, err := unprivilegedDir("pgbouncer")
	if err != nil {
		return nil, err
	}
	p := &Pooler{server: server, dir: dir}
	if err := p.start(ctx, opts, as); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	say(opts.Log, "PgBouncer is ready on 127.0.0.1:%d", p.port)
	return p, nil
}

// start runs PgBouncer on the first free port that nobody takes before it.
func (p *Pooler) start(ctx context.Context, opts PoolerOptions, as *account) error {
	for attempt := 1; ; attempt++ {
		var err error
		if p.port, err = freePort(); err != nil {
			return err
		}
		config := filepath.Join(p.dir.path, "pgbouncer.ini")
		if err := p.configure(config, opts, as); err != nil {
			return fmt.Errorf("devstack: start pgbouncer: %w", err)
		}
		p.running, err = command{
			name: "pgbouncer", path: opts.Path, args: []string{config},
			env: []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "HOME=" + p.dir.path},
			dir: p.dir, as: as, stopSignal: "INT",
		}.start()
		if err != nil {
			return err
		}
		err = p.waitReady(ctx)
		if attempt == startAttempts || !errors.Is(err, errEnded) {
			return err
		}
	}
}

func (p *Pooler) configure(path string, opts PoolerOptions, as *account) error {
	password, _ := p.server.User.Password()
	quoted := strings.NewReplacer(`"`, `""`)
	users := filepath.Join(p.dir.path, "users.txt")
	settings := map[string]string{
		"listen_addr":       "127.0.0.1",
		"listen_port":       strconv.Itoa(p.port),
		"unix_socket_dir":   "",
		"auth_type":         "plain",
		"auth_file":         users,
		"pool_mode":         "transaction",
		"default_pool_size": strconv.Itoa(opts.PoolSize),
		"max_client_conn":   "1000",
	}
	for name, value := range opts.Settings {
		settings[name] = value
	}
	var ini strings.Builder
	fmt.Fprintf(&ini, "[databases]\n* = host=%s port=%s\n[pgbouncer]\n", p.server.Hostname(), p.server.Port())
	for name, value := range settings {
		fmt.Fprintf(&ini, "%s = %s\n", name, value)
	}
	for name, text := range map[string]string{
		path:  ini.String(),
		users: fmt.Sprintf("\"%s\" \"%s\"\n", quoted.Replace(p.server.User.Username()), quoted.Replace(password)),
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			return err
		}
		if as != nil {
			if err := os.Chown(name, int(as.uid), int(as.gid)); err != nil {
				return err
			}
		}
	}
	return nil
}

// URL returns the URL of a database of the server, by way of the pooler. databaseURL is
// the one that leads to the server itself.
func (p *Pooler) URL(databaseURL string) (string, error) {
	parsed, err := url.Parse(databaseURL)
	if err != nil {
		return "", fmt.Errorf("devstack: database URL: %w", err)
	}
	parsed.Host = net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port))
	return parsed.String(), nil
}

func (p *Pooler) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, poolerReady, fmt.Errorf("not ready after %s", poolerReady))
	defer cancel()
	through, err := p.URL(p.server.String())
	if err != nil {
		return err
	}
	config, err := pgx.ParseConfig(through)
	if err != nil {
		return fmt.Errorf("devstack: start pgbouncer: %w", err)
	}
	retry := time.NewTicker(25 * time.Millisecond)
	defer retry.Stop()
	for {
		conn, err := pgx.ConnectConfig(ctx, config)
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-p.running.done:
			return p.running.ended()
		case <-ctx.Done():
			return fmt.Errorf("devstack: start pgbouncer: %w; last try: %w", context.Cause(ctx), err)
		case <-retry.C:
		}
	}
}

// Stop ends PgBouncer and removes its files.
func (p *Pooler) Stop() error {
	var err error
	if p.running != nil {
		err = p.running.stop("INT")
		p.running = nil
	}
	return errors.Join(err, p.dir.remove())
}
