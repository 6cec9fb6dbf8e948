package main

import "errors"

// cursorFlag is the value of --cursor. An empty one is refused: a script that goes on
// past the last page would begin again with the first.
type cursorFlag struct{ cursor *string }

// String, Set and Type make it a flag.
func (c cursorFlag) String() string {
	if c.cursor == nil {
		return ""
	}
	return *c.cursor
}

// Set refuses the empty cursor, which stands behind the last page.
func (c cursorFlag) Set(text string) error {
	if text == "" {
		return errors.New("it is empty: there is no page after the last; leave the flag out to start from the first")
	}
	*c.cursor = text
	return nil
}

// Type names the flag's value in the help.
func (cursorFlag) Type() string { return "cursor" }
