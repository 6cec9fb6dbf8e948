package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"

	"github.com/deadletter-dev/deadletter/dlqstore"
	"github.com/deadletter-dev/deadletter/internal/edit"
)

// draft is what a person typed, in a file that only they can read.
type draft struct {
	path string
	text json.RawMessage
}

// openEditor lets a person change the arguments; nil means that they did not. A
// text that is not JSON stays where it is, for another try.
func (c *cli) openEditor(ctx context.Context, dl *dlqstore.DeadLetter) (*draft, error) {
	command := c.variable("VISUAL")
	if command == "" {
		command = c.variable("EDITOR")
	}
	if command == "" {
		return nil, usagef("--editor: no editor is named: set VISUAL or EDITOR")
	}
	before, err := edit.Text(dl)
	if err != nil {
		return nil, err
	}
	file, err := os.CreateTemp("", "deadletter-*.json") // mode 0600
	if err != nil {
		return nil, fmt.Errorf("write the arguments for the editor: %w", err)
	}
	d := &draft{path: file.Name()}
	_, err = file.Write(before)
	if err = errors.Join(err, file.Close()); err != nil {
		d.discard()
		return nil, fmt.Errorf("write the arguments for the editor: %w", err)
	}
	fmt.Fprintf(c.errw, "%s: %s is a JSON array of the arguments of %s. Saved unchanged, it changes nothing.\n", name, d.path, printable(dl.WorkflowID))
	// By a shell, since the variable may hold options; the path is no part of its text.
	process := exec.CommandContext(ctx, "sh", "-c", command+` "$1"`, "sh", d.path)
	process.Stdin, process.Stdout, process.Stderr, process.Env = c.in, c.out, c.errw, c.environ
	if terminal, ok := c.in.(interface{ Terminal() *os.File }); ok {
		process.Stdin = terminal.Terminal() // as it is: a pipe would be no terminal
	}
	if err := process.Run(); err != nil {
		return nil, d.keep(fmt.Errorf("the editor: %w", err))
	}
	if d.text, err = os.ReadFile(d.path); errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("nothing was changed: the editor removed the file instead of saving it")
	} else if err != nil {
		return nil, fmt.Errorf("read what was edited: %w", err)
	}
	if bytes.Equal(d.text, before) {
		d.discard()
		return nil, nil
	}
	if err := edit.CheckText(d.text); err != nil {
		return nil, d.keep(err)
	}
	return d, nil
}

// keep says where the person's text is, beside the error.
func (d *draft) keep(err error) error {
	if d == nil {
		return err
	}
	return fmt.Errorf("%w; your text is kept: mend it and pass --args @%s", err, d.path)
}

func (d *draft) discard() {
	if d != nil {
		_ = os.Remove(d.path) // it stays readable by its owner only
	}
}

// variable looks a name up in the environment.
func (c *cli) variable(name string) string {
	for i := len(c.environ) - 1; i >= 0; i-- { // the last one counts
		if value, ok := strings.CutPrefix(c.environ[i], name+"="); ok {
			return value
		}
	}
	return ""
}
