package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// docCommand is a whole command of ours in a page: a line of a shell block, or text in backticks.
var docCommand = regexp.MustCompile("(?m)^temporal-deadletter .*$|`temporal-deadletter [^`\n]*`")

// TestDocumentedCommands proves that every command which the README and the manual
// show is one that the program takes: the verb, its flags and their values.
func TestDocumentedCommands(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	checked := 0
	for _, page := range append(pages, "../../README.md", "../../CONTRIBUTING.md") {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, match := range docCommand.FindAll(text, -1) {
			line := strings.Trim(string(match), "`")
			if strings.Contains(line, "…") {
				continue // it stands for any flags
			}
			c := &cli{out: &bytes.Buffer{}, errw: &bytes.Buffer{}, output: outputText}
			verb, rest, err := c.rootCommand().Find(shellWords(t, line)[1:])
			require.NoError(t, err, "%s: %s", page, line)
			require.NoError(t, verb.ParseFlags(rest), "%s: %s", page, line)
			if verb.Args != nil {
				require.NoError(t, verb.Args(verb, verb.Flags().Args()), "%s: %s", page, line)
			}
			checked++
		}
	}
	require.Greater(t, checked, 25, "the pattern finds the commands")
}

// shellWords splits a line as the shell does: quotes and comments. A redirection is left out.
func shellWords(t *testing.T, line string) []string {
	t.Helper()
	command, _, _ := strings.Cut(line, " > ")
	out, err := exec.CommandContext(t.Context(), "sh", "-c", "printf '%s\\0' "+command).Output()
	require.NoError(t, err, line)
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
}
