package main

import (
	"io"
	"path/filepath"
	"testing"

	compose "github.com/compose-spec/compose-go/v2/cli"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
)

// TestComposeFile proves that docker-compose.temporal.yml is a valid Compose file
// without warnings, and that each service waits for services that say when they are
// ready. It reads the file with Compose's own library, so no program is needed.
func TestComposeFile(t *testing.T) {
	t.Parallel()
	var warnings recorder
	logrus.AddHook(&warnings) // where the library writes its warnings
	logrus.SetOutput(io.Discard)
	options, err := compose.NewProjectOptions([]string{filepath.Join("..", "..", "docker-compose.temporal.yml")}, compose.WithResolvedPaths(true))
	require.NoError(t, err)
	project, err := options.LoadProject(t.Context())
	require.NoError(t, err)
	require.Empty(t, warnings.messages)
	require.Equal(t, []string{"postgres", "temporal", "ui", "worker"}, project.ServiceNames())
	for name, service := range project.Services {
		require.NotNil(t, service.HealthCheck, name)
		for dependency, wait := range service.DependsOn {
			require.Equal(t, "service_healthy", wait.Condition, "%s waits for %s", name, dependency)
		}
	}
}

// recorder is a logrus.Hook that keeps what is logged.
type recorder struct{ messages []string }

func (r *recorder) Levels() []logrus.Level { return logrus.AllLevels }

func (r *recorder) Fire(entry *logrus.Entry) error {
	r.messages = append(r.messages, entry.Message)
	return nil
}
