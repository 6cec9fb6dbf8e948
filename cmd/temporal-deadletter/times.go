package main

import (
	"strconv"
	"strings"
	"time"

	"github.com/deadletter-dev/deadletter/dlqstore"
)

const (
	day  = 24 * time.Hour
	week = 7 * day
)

// timeHelp says how a moment is given.
const timeHelp = "a time such as 2026-01-31T10:00:00Z or one that this tool has printed, or how long ago, such as 90m, 1d or 2w"

// moment reads a time, or a length of time as that long before now. An empty text is nil.
func moment(flag, text string, now time.Time) (*time.Time, error) {
	if text == "" {
		return nil, nil
	}
	if at, err := dlqstore.ParseTime(text); err == nil {
		return &at, nil
	}
	ago, ok := parseSpan(text)
	if !ok {
		return nil, usagef("--%s: %q is not %s", flag, text, timeHelp)
	}
	at := now.Add(-ago)
	return &at, nil
}

// span reads a length of time that is more than nothing.
func span(flag, text string) (time.Duration, error) {
	total, ok := parseSpan(text)
	if !ok || total == 0 {
		return 0, usagef("--%s: %q is not a length of time such as 2w, 30d, 12h or 1d12h", flag, text)
	}
	return total, nil
}

// parseSpan reads a Go duration that may begin with weeks and days: 2w, 30d, 1d12h, 720h.
// It refuses a negative one.
func parseSpan(text string) (total time.Duration, ok bool) {
	rest := text
	for _, unit := range []struct {
		name   string
		length time.Duration
	}{{"w", week}, {"d", day}} {
		count, after, found := strings.Cut(rest, unit.name)
		if !found {
			continue
		}
		n, err := strconv.ParseUint(count, 10, 13) // 8,191 weeks and as many days fit a duration
		if err != nil {
			return 0, false
		}
		total, rest = total+time.Duration(n)*unit.length, after
	}
	if rest == "" {
		return total, text != ""
	}
	more, err := time.ParseDuration(rest)
	if err != nil || more < 0 || total+more < total {
		return 0, false
	}
	return total + more, true
}

// spanText writes a length of time as parseSpan reads it, with days where they are whole.
func spanText(d time.Duration) string {
	if d >= day && d%day == 0 {
		return strconv.FormatInt(int64(d/day), 10) + "d"
	}
	return d.String()
}

// ageText says how long ago a time is in its largest whole unit, as moment reads it.
func ageText(at, now time.Time) string {
	age := max(now.Sub(at), 0) // the database's clock may be ahead
	for _, unit := range []struct {
		name   string
		length time.Duration
	}{{"d", day}, {"h", time.Hour}, {"m", time.Minute}} {
		if age >= 2*unit.length {
			return strconv.FormatInt(int64(age/unit.length), 10) + unit.name
		}
	}
	return strconv.FormatInt(int64(age/time.Second), 10) + "s"
}

const timeForm = "2006-01-02 15:04:05Z"

func timeText(t *time.Time) string {
	if t == nil {
		return "unknown"
	}
	return t.UTC().Format(timeForm)
}
