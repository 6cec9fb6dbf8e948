package deadletter_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/deadletter-dev/deadletter/internal/devstack"
)

// fenced returns the blocks of the README in one language.
func fenced(t *testing.T, language string) []string {
	t.Helper()
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	var blocks []string
	for _, match := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllSubmatch(readme, -1) {
		blocks = append(blocks, string(match[1]))
	}
	return blocks
}

// particulars are what differs between two runs of the demo.
var particulars = regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ +\d+[smh]|127\.0\.0\.1:\d+|\([0-9.]+m?s, from [^)]*\)|-replay-[a-z2-7]{12}`)

// TestReadmeDemo runs the README's first command and proves that its output is the
// one shown, in every line that does not depend on the time or the machine.
func TestReadmeDemo(t *testing.T) {
	t.Parallel()
	// Where there is no Temporal CLI it is built now: dev would tell of that.
	_, err := devstack.TemporalCLI(t.Context(), os.Stderr)
	require.NoError(t, err)
	command := strings.Fields(fenced(t, "sh")[0])
	require.Equal(t, []string{"go", "run", "./cmd/temporal-deadletter", "dev"}, command)
	demo := exec.CommandContext(t.Context(), command[0], append(command[1:], "--once")...)
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "TEMPORAL_") || strings.HasPrefix(variable, "TEMPORAL_CLI_PATH=") {
			demo.Env = append(demo.Env, variable)
		}
	}
	out, err := demo.CombinedOutput()
	require.NoError(t, err, "%s", out)

	// Shown whole, up to where the command stays up.
	shown, _, found := strings.Cut(fenced(t, "text")[0], "All of it stays up")
	require.True(t, found)
	require.Equal(t, comparable(shown), comparable(string(out)))
}

// comparable returns the lines without particulars, in an order of their own:
// servers become ready, and jobs die, in any.
func comparable(output string) []string {
	var lines []string
	for line := range strings.Lines(particulars.ReplaceAllString(output, "…")) {
		if line = strings.Join(strings.Fields(line), " "); line != "" {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return lines
}

// wiringProgram is what the README's lines need around them to be a program.
const wiringProgram = `package main

import (
	"context"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"github.com/deadletter-dev/deadletter"
	"github.com/deadletter-dev/deadletter/dlqstore"
)

type EmailArgs struct{ To string }

func SendEmail(context.Context, EmailArgs) error { return nil }

func wire(ctx context.Context, databaseURL string) (any, error) {
%s
	return job, err
}

func main() { _ = wire }
`

// TestReadmeWiring proves that the README's lines of wiring compile as they stand.
func TestReadmeWiring(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "wiring.go")
	require.NoError(t, os.WriteFile(program, fmt.Appendf(nil, wiringProgram, fenced(t, "go")[0]), 0o600))
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", os.DevNull, program).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// TestReadmeLinks proves that each relative link of the README and the manual leads to a file.
func TestReadmeLinks(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	require.NotEmpty(t, pages)
	for _, page := range append(pages, "README.md", "CONTRIBUTING.md") {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, match := range regexp.MustCompile(`\]\(([^):#]+)[^):]*\)`).FindAllSubmatch(text, -1) {
			require.FileExists(t, filepath.Join(filepath.Dir(page), string(match[1])), "a link of %s", page)
		}
	}
}

// TestReadmeIsShort proves that the README stays a first page: the manual is in docs.
func TestReadmeIsShort(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	require.LessOrEqual(t, bytes.Count(readme, []byte("\n")), 200)
}

// TestReadmeTestCommand proves that CI runs the README's test command, which must
// be the first line that begins with "go test".
func TestReadmeTestCommand(t *testing.T) {
	t.Parallel()
	require.Equal(t, "go test -timeout 40m ./...\n", fenced(t, "sh")[1])
	for _, pkg := range golist(t, "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}", module+"/...") {
		require.Contains(t, fenced(t, "text")[1], "ok  \t"+pkg+"\t", "the output shown lacks a package with tests")
	}
	ci, err := os.ReadFile(filepath.Join(".ci", "run"))
	require.NoError(t, err)
	require.Contains(t, string(ci), `sed -n 's/^\(go test .*\)$/\1/p' README.md | head -n 1`)
}
