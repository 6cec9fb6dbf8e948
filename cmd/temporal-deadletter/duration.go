package main

import (
	"strconv"
	"strings"
	"time"
)

const day = 24 * time.Hour

// span reads a Go duration that may begin with days: 30d, 1d12h, 720h.
func span(flag, text string) (time.Duration, error) {
	fault := usagef("--%s: %q is no length of time such as 30d, 12h or 1d12h", flag, text)
	var total time.Duration
	rest := text
	if days, after, found := strings.Cut(text, "d"); found {
		n, err := strconv.ParseUint(days, 10, 16) // 65,535 days fit a duration
		if err != nil {
			return 0, fault
		}
		total, rest = time.Duration(n)*day, after
	}
	if rest != "" {
		more, err := time.ParseDuration(rest)
		if err != nil || more < 0 || total+more < total {
			return 0, fault
		}
		total += more
	}
	if total <= 0 {
		return 0, fault
	}
	return total, nil
}

// spanText writes a length of time as span reads it, with days where they are whole.
func spanText(d time.Duration) string {
	if d >= day && d%day == 0 {
		return strconv.FormatInt(int64(d/day), 10) + "d"
	}
	return d.String()
}
