package main

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/connect"
	"github.com/deadletter-dev/deadletter/job"
)

// printPlaces says where everything is, and what to try from another terminal.
func (c *cli) printPlaces(servers *servers, s *session, run *demonstration) {
	fmt.Fprintln(c.out, "\nAll of it stays up until Ctrl-C.")
	var places [][2]string
	if servers.temporal != nil {
		places = append(places, [2]string{"Temporal UI", jobsPage(servers.temporal.UIURL, s.config.Temporal.Namespace)})
	}
	places = append(places, [2]string{"Temporal", s.config.Temporal.HostPort})
	if servers.postgres != nil {
		// Shown with its password: it is a throw-away one on this machine.
		places = append(places, [2]string{"Postgres", servers.postgres.URL})
	} else {
		places = append(places, [2]string{"Postgres", s.config.Database()})
	}
	for _, place := range places {
		fmt.Fprintf(c.out, "  %-12s %s\n", place[0], place[1])
	}
	fmt.Fprintln(c.out, "\nTry in another terminal:")
	command := invokedAs()
	for _, line := range append(c.exports(servers, s.config),
		command+" list",
		command+" show -w "+run.id(unknownName),
		command+" replay -w "+run.id(replayedName),
		command+" stats",
	) {
		fmt.Fprintln(c.out, "  "+line)
	}
}

// exports are the lines that make another terminal use the same servers.
func (c *cli) exports(servers *servers, config *connect.Config) []string {
	line := "export TEMPORAL_ADDRESS=" + shellWord(config.Temporal.HostPort) + " TEMPORAL_NAMESPACE=" + shellWord(config.Temporal.Namespace)
	if c.overrides.Profile != "" {
		line += " TEMPORAL_PROFILE=" + shellWord(c.overrides.Profile)
	}
	if servers.postgres != nil {
		line += " DEADLETTER_DATABASE_URL='" + servers.postgres.URL + "'"
	}
	if config.Schema != dlqstore.DefaultSchema {
		line += " DEADLETTER_SCHEMA=" + shellWord(config.Schema)
	}
	if servers.temporal != nil {
		line += " " + connect.UIVariable + "=" + shellWord(servers.temporal.UIURL)
	}
	switch {
	case servers.postgres != nil:
		return []string{line}
	case c.overrides.DatabaseURL != "":
		return []string{line, "# and export DEADLETTER_DATABASE_URL with the URL that you passed as --database-url"}
	default:
		return []string{line, "# and keep the DEADLETTER_DATABASE_URL that you have set"}
	}
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_.:/@%+,-]+$`)

// shellWord quotes what a shell would not take as it is.
func shellWord(text string) string {
	if plainWord.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// jobsPage is the UI's list of all job workflows.
func jobsPage(ui, namespace string) string {
	query := url.Values{"query": {`WorkflowType="` + job.WorkflowType + `"`}}
	return ui + "/namespaces/" + url.PathEscape(namespace) + "/workflows?" + query.Encode()
}

// invokedAs is the command by which a person runs this program here.
func invokedAs() string {
	if _, err := exec.LookPath(name); err == nil {
		return name
	}
	path, err := os.Executable()
	switch {
	case err != nil:
		return name
	case strings.Contains(path, string(filepath.Separator)+"go-build"):
		return "go run ./cmd/" + name
	default:
		return path
	}
}
