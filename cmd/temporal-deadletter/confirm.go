package main

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// aside is where people read what a verb is about to do: a program that reads the
// output finds only the result there.
func (c *cli) aside() io.Writer {
	if c.output == outputText {
		return c.out
	}
	return c.errw
}

// confirm asks, and fails with what did not happen unless the answer is yes.
func (c *cli) confirm(ctx context.Context, question, notDone string) error {
	return c.confirmOn(ctx, c.aside(), question, notDone)
}

// confirmOn is confirm with the question beside what it is about.
func (c *cli) confirmOn(ctx context.Context, w io.Writer, question, notDone string) error {
	fmt.Fprintf(w, "%s [y/N] ", question)
	answer, err := c.ask(ctx)
	if err != nil {
		return err
	}
	if answer != "y" && answer != "yes" {
		return errors.New(notDone + ": the answer was not yes")
	}
	return nil
}

// mustAsk is the fault of a verb that asks first where nobody can answer.
func (c *cli) mustAsk(verb string, yes bool) error {
	if yes || c.canAsk() {
		return nil
	}
	return usagef("%s asks before it acts, and there is no terminal to ask on: pass --yes to act without asking", verb)
}
