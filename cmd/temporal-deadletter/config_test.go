package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/deadletter-dev/deadletter/dlqstore"
)

func profileFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "temporal.toml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// TestProfile proves that a profile of Temporal's configuration file says where
// to look, and that a flag wins over it.
func TestProfile(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.move("mine", func(dl *dlqstore.DeadLetter) { dl.Namespace = "prod" })
	b.environ = []string{
		"TEMPORAL_CONFIG_FILE=" + profileFile(t, "[profile.prod]\naddress = \""+b.address+"\"\nnamespace = \"prod\"\n"),
		"DATABASE_URL=" + b.url,
	}
	require.Contains(t, b.succeed("--profile", "prod", "list"), "mine")
	require.Contains(t, b.succeed("list", "--profile", "prod"), "mine")
	require.Equal(t, "No dead letters match.\n", b.succeed("list", "--profile", "prod", "--namespace", "default"))
	require.Equal(t, "No dead letters match.\n", b.succeed("list"))
	require.Contains(t, b.succeed("stats", "--profile", "prod", "--namespace", "default"), "total")
}
