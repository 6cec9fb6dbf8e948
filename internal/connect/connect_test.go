package connect_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/log"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/connect"
)

const noFile = "TEMPORAL_CONFIG_FILE=/nonexistent/temporal.toml"

// TestPrecedence proves that flags win over the environment, which wins over the
// profile, which wins over the defaults.
func TestPrecedence(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "temporal.toml")
	require.NoError(t, os.WriteFile(path, []byte("[profile.prod]\naddress = \"profile:1\"\nnamespace = \"profile\"\n"), 0o600))
	file := "TEMPORAL_CONFIG_FILE=" + path

	type settings struct{ address, namespace, database, schema, taskQueue string }
	for name, test := range map[string]struct {
		environ []string
		flags   connect.Overrides
		want    settings
	}{
		"defaults": {
			environ: []string{noFile},
			want:    settings{"localhost:7233", "default", "", "deadletter", "deadletter"},
		},
		"profile": {
			environ: []string{file, "TEMPORAL_PROFILE=prod"},
			want:    settings{"profile:1", "profile", "", "deadletter", "deadletter"},
		},
		"environment over profile": {
			environ: []string{
				file, "TEMPORAL_PROFILE=prod", "TEMPORAL_ADDRESS=env:1", "DATABASE_URL=postgres://any", "DEADLETTER_DATABASE_URL=postgres://own",
				"DEADLETTER_SCHEMA=s", "DEADLETTER_TASK_QUEUE=q",
			},
			want: settings{"env:1", "profile", "postgres://own", "s", "q"},
		},
		"the last setting counts": {
			environ: []string{noFile, "DATABASE_URL=postgres://first", "DATABASE_URL=postgres://last"},
			want:    settings{"localhost:7233", "default", "postgres://last", "deadletter", "deadletter"},
		},
		"flags over all": {
			environ: []string{file, "TEMPORAL_ADDRESS=env:1", "TEMPORAL_NAMESPACE=env", "DEADLETTER_DATABASE_URL=postgres://own", "DEADLETTER_SCHEMA=s"},
			flags: connect.Overrides{
				Address: "flag:1", Namespace: "flag", Profile: "prod", DatabaseURL: "postgres://flag", Schema: "t", TaskQueue: "r",
			},
			want: settings{"flag:1", "flag", "postgres://flag", "t", "r"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config, err := connect.Load(test.environ, test.flags)
			require.NoError(t, err)
			require.Equal(t, test.want, settings{
				config.Temporal.HostPort, config.Temporal.Namespace, config.DatabaseURL, config.Schema, config.TaskQueue,
			})
		})
	}
}

// TestNamed proves that only a setting meant for this program counts as naming a
// server: not the default profile, and not the DATABASE_URL of some application.
func TestNamed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "temporal.toml")
	require.NoError(t, os.WriteFile(path, []byte("[profile.default]\naddress = \"prod:7233\"\n"), 0o600))
	config, err := connect.Load([]string{"TEMPORAL_CONFIG_FILE=" + path, "DATABASE_URL=postgres://prod"}, connect.Overrides{})
	require.NoError(t, err)
	require.False(t, config.TemporalNamed)
	require.False(t, config.DatabaseNamed)

	config, err = connect.Load([]string{noFile, "TEMPORAL_ADDRESS=a:1", "DEADLETTER_DATABASE_URL=postgres://d"}, connect.Overrides{})
	require.NoError(t, err)
	require.True(t, config.TemporalNamed)
	require.True(t, config.DatabaseNamed)
}

// TestUnknownProfile proves that a profile that does not exist is an error.
func TestUnknownProfile(t *testing.T) {
	t.Parallel()
	_, err := connect.Load([]string{noFile}, connect.Overrides{Profile: "nowhere"})
	require.ErrorContains(t, err, "nowhere")
}

// TestDatabase proves that a database is named without user and password.
func TestDatabase(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"postgres://u:geheim@db.example.com:6543/jobs?pool_max_conns=3": "db.example.com:6543/jobs",
		"host=/run/postgresql user=u password=geheim dbname=jobs":       "/run/postgresql/jobs",
		"postgres://u:geheim@[::1]/jobs":                                "[::1]:5432/jobs",
		"postgres://u:geheim@%zz":                                       "an unknown database",
	} {
		require.Equal(t, want, (&connect.Config{DatabaseURL: url}).Database())
	}
}

// TestNoDatabase proves that nothing falls back to some database of the machine.
func TestNoDatabase(t *testing.T) {
	t.Parallel()
	config, err := connect.Load([]string{noFile}, connect.Overrides{})
	require.NoError(t, err)
	_, err = config.OpenStore(t.Context())
	require.ErrorIs(t, err, connect.ErrNoDatabase)
	require.ErrorIs(t, config.Migrate(t.Context()), connect.ErrNoDatabase)
}

// TestProgramWithoutFlags proves that a program without flags is not told to use
// some.
func TestProgramWithoutFlags(t *testing.T) {
	t.Parallel()
	config, err := connect.Load([]string{noFile, "TEMPORAL_ADDRESS=127.0.0.1:1"}, connect.Overrides{})
	require.NoError(t, err)
	config.NoFlags = true
	require.EqualError(t, config.CheckDatabase(), "no database is named: set DEADLETTER_DATABASE_URL (or DATABASE_URL)")
	config.DatabaseURL = "postgres://127.0.0.1:1/jobs"
	_, err = config.OpenStore(t.Context())
	require.ErrorIs(t, err, dlqstore.ErrUnavailable)
	require.EqualError(t, err, "cannot use Postgres at 127.0.0.1:1/jobs: connection refused: see that it runs and that DEADLETTER_DATABASE_URL names it")
	_, err = config.Dial(t.Context(), log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	require.ErrorIs(t, err, connect.ErrNoTemporal)
	require.NotContains(t, err.Error(), "--address")
}

// TestWrongURL proves that a URL that cannot be read is told from a server that
// cannot be reached, and is not repeated: a password may be in it.
func TestWrongURL(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"nonsense", "postgres://u:geheim@%zz", "postgres://u:geheim@h/d?sslrootcert=/nonexistent&sslmode=verify-full"} {
		config := &connect.Config{DatabaseURL: url}
		_, err := config.OpenStore(t.Context())
		for _, err := range []error{err, config.Migrate(t.Context()), config.CheckDatabase()} {
			require.ErrorIs(t, err, connect.ErrSetting)
			require.ErrorContains(t, err, "wrong setting --database-url or DEADLETTER_DATABASE_URL: ")
			require.NotContains(t, err.Error(), "geheim")
		}
	}
}
