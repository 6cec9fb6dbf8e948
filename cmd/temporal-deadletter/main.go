// Command temporal-deadletter is the operator's tool for dead letters: it lists,
// shows, edits, replays and purges them. `temporal-deadletter dev` shows all of it on
// servers of its own. A Temporal CLI of 1.6.0 or newer runs it as
// `temporal deadletter`.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second Ctrl-C ends the process at once.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Environ(), keyboard{os.Stdin}, os.Stdout, os.Stderr))
}

// keyboard is standard input, which may be a person.
type keyboard struct{ *os.File }

// IsTerminal reports whether a person can answer.
func (k keyboard) IsTerminal() bool { return term.IsTerminal(int(k.Fd())) }

// Terminal returns the terminal itself, for a program that takes it over.
func (k keyboard) Terminal() *os.File { return k.File }
