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
	os.Exit(run(ctx, os.Args[1:], os.Environ(), console{os.Stdin}, console{os.Stdout}, os.Stderr))
}

// console is standard input or output, at the other end of which a person may be.
type console struct{ *os.File }

// IsTerminal reports whether there is one.
func (c console) IsTerminal() bool { return term.IsTerminal(int(c.Fd())) }

// Size returns how many columns and rows the terminal has, zeros when there is none.
func (c console) Size() (columns, rows int) {
	columns, rows, err := term.GetSize(int(c.Fd()))
	if err != nil {
		return 0, 0
	}
	return columns, rows
}

// Terminal returns the terminal itself, for a program that takes it over.
func (c console) Terminal() *os.File { return c.File }
