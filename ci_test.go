package deadletter_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// required finds the programs that tests ask devtest.Require for.
var required = regexp.MustCompile(`devtest\.Require\(\w+, "([^"]+)"`)

// TestCIInstallsAll proves that .ci/run lets no test skip, and installs every program
// that a test needs beyond Go, Postgres and Temporal.
func TestCIInstallsAll(t *testing.T) {
	t.Parallel()
	ci, err := os.ReadFile(filepath.Join(".ci", "run"))
	require.NoError(t, err)
	require.Contains(t, string(ci), "\nexport DEADLETTER_REQUIRE_ALL=1\n")
	found := 0
	require.NoError(t, filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, match := range required.FindAllSubmatch(source, -1) {
			found++
			require.Contains(t, string(ci), "\n\t["+string(match[1])+"]=", "%s needs it", path)
		}
		return err
	}))
	require.Positive(t, found)
}
