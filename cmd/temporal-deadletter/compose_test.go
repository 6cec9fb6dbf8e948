package main

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestComposeFile proves that Compose accepts docker-compose.temporal.yml. It
// takes either form of Compose and needs no engine.
func TestComposeFile(t *testing.T) {
	t.Parallel()
	compose := []string{"docker", "compose"}
	if err := exec.Command("docker", "compose", "version").Run(); err != nil {
		compose = []string{"docker-compose"}
		_, err := exec.LookPath("docker-compose")
		require.NoError(t, err, "this test needs Compose: install the plugin of docker, or the package docker-compose")
	}
	check := exec.CommandContext(t.Context(), compose[0], append(compose[1:], "-f", "docker-compose.temporal.yml", "config", "-q")...)
	check.Dir = "../.."
	output, err := check.CombinedOutput()
	require.NoError(t, err, string(output))
	require.Empty(t, string(output), "no warnings")
}
