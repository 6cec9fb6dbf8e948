// Package connect finds out from the environment, a Temporal profile and flags
// which servers a process uses, and connects to them. The CLI, the reference
// worker and the starter share it.
package connect

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
	"go.temporal.io/sdk/log"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/resourceid"
	"github.com/deadletter-dev/deadletter/job"
)

// The environment's names, beside the TEMPORAL_ ones of the SDK's envconfig.
const (
	databaseEnv         = "DEADLETTER_DATABASE_URL"
	fallbackDatabaseEnv = "DATABASE_URL"
	schemaEnv           = "DEADLETTER_SCHEMA"
	taskQueueEnv        = "DEADLETTER_TASK_QUEUE"
	addressEnv          = "TEMPORAL_ADDRESS"
	namespaceEnv        = "TEMPORAL_NAMESPACE"
)

// Errors that callers branch on.
var (
	// ErrSetting: a setting must change; no server was asked.
	ErrSetting = errors.New("wrong setting")
	// ErrNoDatabase: nothing names the database.
	ErrNoDatabase = errors.New("no database is named")
	// ErrNoTemporal: there is no answer from Temporal.
	ErrNoTemporal = errors.New("cannot reach Temporal")
)

// Overrides come from flags. An empty field overrides nothing.
type Overrides struct {
	Address     string // of Temporal, host:port
	Namespace   string
	Profile     string // of Temporal's configuration file
	DatabaseURL string
	Schema      string
	TaskQueue   string // of the dead-letter activities
	UIURL       string // of the Temporal UI
}

// Config says which servers to use.
type Config struct {
	// Temporal has HostPort and Namespace set. Add a Logger and Plugins as needed.
	Temporal client.Options
	// DatabaseURL is empty when nothing names one.
	DatabaseURL string
	// Schema and TaskQueue have their defaults when nothing names others.
	Schema    string
	TaskQueue string
	// UIURL is where the Temporal UI is, empty when nothing names one.
	UIURL string

	// TemporalNamed and DatabaseNamed say that this very program was told which
	// server to use: by a flag, by TEMPORAL_ADDRESS or by DEADLETTER_DATABASE_URL,
	// rather than by the default profile or by DATABASE_URL.
	TemporalNamed bool
	DatabaseNamed bool

	// NoFlags is for a program without flags: errors then name only variables of
	// the environment.
	NoFlags bool
}

// Load reads the settings: overrides win over environ (as of os.Environ), which
// wins over the profile. It connects to nothing.
func Load(environ []string, overrides Overrides) (*Config, error) {
	env := environment(environ)
	temporal, err := envconfig.LoadClientOptions(envconfig.LoadClientOptionsRequest{
		ConfigFileProfile: overrides.Profile,
		EnvLookup:         env,
	})
	if err != nil {
		return nil, fmt.Errorf("read the Temporal settings (profile, %s and the like): %w", addressEnv, err)
	}
	temporal.HostPort = first(overrides.Address, temporal.HostPort, client.DefaultHostPort)
	temporal.Namespace = first(overrides.Namespace, temporal.Namespace, client.DefaultNamespace)
	ui := first(overrides.UIURL, env.get(UIVariable))
	if parsed, err := url.Parse(ui); ui != "" && (err != nil || parsed.Host == "" || parsed.Scheme != "http" && parsed.Scheme != "https") {
		return nil, fmt.Errorf("%w --ui-url or %s: it must look like http://localhost:8233", ErrSetting, UIVariable)
	}
	return &Config{
		Temporal:      temporal,
		UIURL:         ui,
		DatabaseURL:   first(overrides.DatabaseURL, env.get(databaseEnv), env.get(fallbackDatabaseEnv)),
		Schema:        first(overrides.Schema, env.get(schemaEnv), dlqstore.DefaultSchema),
		TaskQueue:     first(overrides.TaskQueue, env.get(taskQueueEnv), job.DefaultTaskQueue),
		TemporalNamed: first(overrides.Address, overrides.Profile, env.get(addressEnv)) != "",
		DatabaseNamed: first(overrides.DatabaseURL, env.get(databaseEnv)) != "",
	}, nil
}

func first(values ...string) string {
	for _, value := range values {
		if value != "" {
			return value
		}
	}
	return ""
}

// UIVariable names the Temporal UI's address: no server tells it.
const UIVariable = "DEADLETTER_UI_URL"

// dialTimeout bounds the first contact with a server, so that one which swallows
// packets is reported and not waited for.
const dialTimeout = 15 * time.Second

// Dial connects to Temporal and returns when the namespace answers. The caller
// closes the client.
func (c *Config) Dial(ctx context.Context, logger log.Logger, plugins ...client.Plugin) (client.Client, error) {
	options := c.Temporal
	options.Logger = logger
	options.Plugins = append(slices.Clone(options.Plugins), plugins...)
	options.ConnectionOptions.GetSystemInfoTimeout = dialTimeout // the SDK's own bound is shorter
	options.ConnectionOptions.DialOptions = append(slices.Clone(options.ConnectionOptions.DialOptions), resourceid.DialOption())
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	connected, err := client.DialContext(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("%w at %s: see that it runs and that %s names it: %w", ErrNoTemporal, options.HostPort, c.setting("--address", addressEnv), err)
	}
	if err := c.checkNamespace(ctx, connected); err != nil {
		connected.Close()
		return nil, err
	}
	return connected, nil
}

// checkNamespace names the fault that the SDK's own calls report late or in
// other words. Any other answer is left to the call that follows: a user may be
// forbidden to describe the namespace.
func (c *Config) checkNamespace(ctx context.Context, connected client.Client) error {
	_, err := connected.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: c.Temporal.Namespace})
	if unknown := (*serviceerror.NamespaceNotFound)(nil); errors.As(err, &unknown) {
		return fmt.Errorf("namespace %q is not on the Temporal server at %s: name another with %s",
			c.Temporal.Namespace, c.Temporal.HostPort, c.setting("--namespace", namespaceEnv))
	}
	return nil
}

// setting names what a person changes to mend a fault.
func (c *Config) setting(flag, variable string) string {
	if c.NoFlags {
		return variable
	}
	return flag + " or " + variable
}

// CheckDatabase says whether a database is named, in a form that can be read:
// ErrNoDatabase or ErrSetting if not. It connects to nothing.
func (c *Config) CheckDatabase() error {
	if c.DatabaseURL == "" {
		how := "pass --database-url or set " + databaseEnv
		if c.NoFlags {
			how = "set " + databaseEnv
		}
		return fmt.Errorf("%w: %s (or %s)", ErrNoDatabase, how, fallbackDatabaseEnv)
	}
	if _, err := pgxpool.ParseConfig(c.DatabaseURL); err != nil {
		// The parser's own words may quote a password; the store's do not. It reads
		// the URL first, so it connects to nothing either.
		_, err = dlqstore.Open(context.Background(), c.DatabaseURL)
		return fmt.Errorf("%w %s: %w", ErrSetting, c.setting("--database-url", databaseEnv), err)
	}
	return nil
}

// OpenStore opens the dead letters. The caller closes the store.
func (c *Config) OpenStore(ctx context.Context) (*dlqstore.Store, error) {
	if err := c.CheckDatabase(); err != nil {
		return nil, err
	}
	store, err := dlqstore.Open(ctx, c.DatabaseURL, dlqstore.WithSchema(c.Schema))
	return store, c.explain(err)
}

// Migrate creates or upgrades the schema.
func (c *Config) Migrate(ctx context.Context) error {
	if err := c.CheckDatabase(); err != nil {
		return err
	}
	return c.explain(dlqstore.Migrate(ctx, c.DatabaseURL, dlqstore.WithSchema(c.Schema)))
}

// Inspect looks at the database for what migrate tells.
func (c *Config) Inspect(ctx context.Context) (*dlqstore.Inspection, error) {
	if err := c.CheckDatabase(); err != nil {
		return nil, err
	}
	inspection, err := dlqstore.Inspect(ctx, c.DatabaseURL, dlqstore.WithSchema(c.Schema))
	return inspection, c.explain(err)
}

// RepairSequences numbers new rows behind those that are there.
func (c *Config) RepairSequences(ctx context.Context) ([]dlqstore.Sequence, error) {
	repaired, err := dlqstore.RepairSequences(ctx, c.DatabaseURL, dlqstore.WithSchema(c.Schema))
	return repaired, c.explain(err)
}

// explain says what to do about an error of the store, without its repetitions:
// Postgres is tried with TLS and without, on each address of its host.
func (c *Config) explain(err error) error {
	var refusal *pgconn.PgError
	where := c.setting("--database-url", databaseEnv)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refusal) && strings.HasPrefix(refusal.Code, invalidAuthorization):
		return explained{fmt.Sprintf("Postgres at %s refuses the user or the password of %s: %s", c.Database(), where, refusal.Message), err}
	case refusal != nil && refusal.Code == noSuchDatabase:
		return explained{fmt.Sprintf("Postgres at %s has no such database: create it, or see that %s names the right one", c.Database(), where), err}
	case errors.Is(err, syscall.ECONNREFUSED):
		return explained{fmt.Sprintf("cannot use Postgres at %s: connection refused: see that it runs and that %s names it", c.Database(), where), err}
	case errors.Is(err, dlqstore.ErrUnavailable):
		return fmt.Errorf("cannot use Postgres at %s: see that it runs and that %s names it: %w", c.Database(), where, err)
	default:
		return err
	}
}

// SQLSTATEs, the first a class.
const (
	invalidAuthorization = "28"
	noSuchDatabase       = "3D000"
)

// explained is an error in other words.
type explained struct {
	text  string
	cause error
}

func (e explained) Error() string { return e.text }
func (e explained) Unwrap() error { return e.cause }

// Database says which database is meant, as host:port/name, without user and
// password.
func (c *Config) Database() string {
	parsed, err := pgxpool.ParseConfig(c.DatabaseURL)
	if err != nil {
		return "an unknown database"
	}
	server := parsed.ConnConfig.Host // a folder when it is a socket's
	if !strings.HasPrefix(server, "/") {
		server = net.JoinHostPort(server, strconv.Itoa(int(parsed.ConnConfig.Port)))
	}
	return server + "/" + parsed.ConnConfig.Database
}

// environment is what envconfig and we look variables up in.
type environment []string

var _ envconfig.EnvLookup = environment(nil)

// Environ returns all of it.
func (e environment) Environ() []string { return e }

// LookupEnv returns the last setting of the name, which is the one that counts.
func (e environment) LookupEnv(name string) (string, bool) {
	for _, setting := range slices.Backward(e) {
		if value, ok := strings.CutPrefix(setting, name+"="); ok {
			return value, true
		}
	}
	return "", false
}

func (e environment) get(name string) string {
	value, _ := e.LookupEnv(name)
	return value
}
