package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/deadletter-dev/deadletter/dlqstore"
)

// TestSpan proves that lengths of time are read with weeks and days, and written as they
// are read, and that what is no length of time, or a negative one, is refused.
func TestSpan(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"30d": 720 * time.Hour, "1d12h": 36 * time.Hour, "0d5m": 5 * time.Minute, "720h": 720 * time.Hour, "90m": 90 * time.Minute,
		"2w": 336 * time.Hour, "1w1d1h": 193 * time.Hour, "1w30m": 168*time.Hour + 30*time.Minute,
	} {
		got, err := span("keep", text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
		again, err := span("keep", spanText(got))
		require.NoError(t, err, text)
		require.Equal(t, want, again, text)
	}
	require.Equal(t, "30d", spanText(720*time.Hour))
	require.Equal(t, "36h0m0s", spanText(36*time.Hour))
	for _, text := range []string{"", "d", "w", "1", "1d1w", "-1d", "1.5d", "1d-1h", "99999d", "99999w", "8191w8191d2540400h", "0s"} {
		_, err := span("keep", text)
		require.Error(t, err, text)
	}
}

// TestMoment proves that a filter takes each form of time that the tool prints, and ages.
func TestMoment(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 23, 47, 45, 0, time.UTC)
	for text, want := range map[string]time.Time{
		timeText(&now): now, now.Format(time.RFC3339Nano): now, "2026-12-01T00:47:45+01:00": now, "2026-12-01 00:47:45+01:00": now,
		"2026-11-30 23:47:45.5Z": now.Add(500 * time.Millisecond), "2026-11-30 23:47Z": now.Truncate(time.Minute),
		"1d": now.Add(-day), "2w": now.Add(-2 * week), "90m": now.Add(-90 * time.Minute), "0s": now,
		ageText(now.Add(-3*day), now): now.Add(-3 * day),
	} {
		at, err := moment("since", text, now)
		require.NoError(t, err, text)
		require.True(t, at.Equal(want), "%s is %s", text, at)
	}
	for _, text := range []string{"yesterday", "2026-11-30", "2026-11-30 23:47:45", "-1d", "1", "unknown"} {
		_, err := moment("since", text, now)
		require.ErrorContains(t, err, "--since: ", text)
	}
	at, err := moment("since", "", now)
	require.NoError(t, err)
	require.Nil(t, at)
	_, err = dlqstore.ParseTime("1d")
	require.Error(t, err)
}

// TestAgeText proves that an age is said in its largest unit of which there are two.
func TestAgeText(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for want, age := range map[string]time.Duration{
		"0s": -time.Hour, "119s": 2*time.Minute - 1, "2m": 2 * time.Minute, "119m": 2*time.Hour - 1, "2h": 2 * time.Hour,
		"47h": 2*day - 1, "2d": 2 * day, "400d": 400 * day,
	} {
		require.Equal(t, want, ageText(now.Add(-age), now))
	}
}
