package main

import (
	"fmt"
	"time"
)

// scanProgress shows how far a search for jobs is: nothing if it is a quick one, for a
// person one line that is drawn again, else a line now and then.
type scanProgress struct {
	cli   *cli
	next  time.Time
	drawn bool
}

const (
	firstProgress = time.Second
	drawEvery     = 200 * time.Millisecond
)

func (c *cli) scanProgress() *scanProgress {
	return &scanProgress{cli: c, next: time.Now().Add(firstProgress)}
}

func (p *scanProgress) show(looked, of int) {
	now := time.Now()
	if now.Before(p.next) {
		return
	}
	text := fmt.Sprintf("looked at %d of %d running jobs", looked, of)
	if !p.cli.canAsk() {
		p.next = now.Add(logEvery)
		p.cli.note("%s", text)
		return
	}
	p.next, p.drawn = now.Add(drawEvery), true
	p.cli.noting.Lock()
	defer p.cli.noting.Unlock()
	fmt.Fprintf(p.cli.errw, "\r\x1b[K%s", text)
}

func (p *scanProgress) end() {
	if p.drawn {
		fmt.Fprint(p.cli.errw, "\r\x1b[K")
	}
}
