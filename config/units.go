package config

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

const day = 24 * time.Hour

// durationUnits and sizeUnits are the words that a number must carry.
var durationUnits = map[string]float64{
	"ns": 1, "us": 1e3, "µs": 1e3, "μs": 1e3, "ms": 1e6, "s": 1e9, "m": 60e9, "h": 3600e9, "d": 86400e9,
}

var sizeUnits = map[string]float64{
	"b": 1, "kb": 1e3, "mb": 1e6, "gb": 1e9, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30,
}

var errNegative = errors.New("must not be negative")

// ParseDuration reads a duration as configuration writes it: Go's own form with `d`
// for days besides (`30s`, `1h30m`, `7d`). Only 0 may stand without a unit; negative
// values are refused.
func ParseDuration(s string) (time.Duration, error) {
	const hint = "needs a unit, such as 500ms, 30s, 5m, 2h or 7d"
	rest := strings.TrimSpace(s)
	if isZero(rest) {
		return 0, nil
	}
	if strings.HasPrefix(rest, "-") {
		return 0, errNegative
	}
	if rest == "" {
		return 0, errors.New("expected a duration, such as 30s")
	}
	var total float64
	for rest != "" {
		n, unit, tail, ok := numberUnit(rest)
		if !ok {
			return 0, fmt.Errorf("%s is not a duration: write a number with a unit, such as 30s", quote(s))
		}
		if unit == "" {
			return 0, fmt.Errorf("%s %s", quote(s), hint)
		}
		f, known := durationUnits[unit]
		if !known {
			return 0, fmt.Errorf("%s has no known unit: one of ns, us, ms, s, m, h, d", quote(s))
		}
		total += n * f
		rest = tail
	}
	if total >= math.MaxInt64 {
		return 0, fmt.Errorf("%s is too long", quote(s))
	}
	return time.Duration(math.Round(total)), nil
}

// ParseSize reads a size in bytes as configuration writes it (`64MiB`, `1.5GB`). Only 0 may
// stand without a unit; negative values are refused.
func ParseSize(s string) (int64, error) {
	t := strings.TrimSpace(s)
	if isZero(t) {
		return 0, nil
	}
	if strings.HasPrefix(t, "-") {
		return 0, errNegative
	}
	n, unit, tail, ok := numberUnit(t)
	if !ok || tail != "" {
		return 0, fmt.Errorf("%s is not a size: write a number with a unit, such as 8MiB", quote(s))
	}
	if unit == "" {
		return 0, fmt.Errorf("%s needs a unit, such as 512KiB, 8MiB or 1GiB", quote(s))
	}
	f, known := sizeUnits[strings.ToLower(unit)]
	if !known {
		return 0, fmt.Errorf("%s has no known unit: one of B, KB, MB, GB, KiB, MiB, GiB", quote(s))
	}
	if n*f >= math.MaxInt64 {
		return 0, fmt.Errorf("%s is too large", quote(s))
	}
	return int64(math.Round(n * f)), nil
}

// isZero knows the spellings of a bare zero.
func isZero(s string) bool {
	n, err := strconv.ParseFloat(s, 64)
	return err == nil && n == 0
}

// numberUnit splits `1.5h20m` into 1.5, `h` and `20m`.
func numberUnit(s string) (n float64, unit, tail string, ok bool) {
	i := strings.IndexFunc(s, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
	if i < 0 {
		i = len(s)
	}
	n, err := strconv.ParseFloat(s[:i], 64)
	if err != nil {
		return 0, "", "", false
	}
	s = strings.TrimLeft(s[i:], " ")
	i = strings.IndexFunc(s, func(r rune) bool { return (r >= '0' && r <= '9') || r == '.' || r == ' ' })
	if i < 0 {
		i = len(s)
	}
	return n, s[:i], strings.TrimLeft(s[i:], " "), true
}

// formatDuration writes a duration so that ParseDuration reads it back, in the
// largest unit that divides it.
func formatDuration(d time.Duration) string {
	for _, u := range []struct {
		size time.Duration
		name string
	}{{day, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}, {time.Millisecond, "ms"}} {
		if d >= u.size && d%u.size == 0 {
			return strconv.FormatInt(int64(d/u.size), 10) + u.name
		}
	}
	return d.String()
}

// formatSize is formatDuration's twin for sizes.
func formatSize(n int64) string {
	for _, u := range []struct {
		size int64
		name string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if n >= u.size && n%u.size == 0 {
			return strconv.FormatInt(n/u.size, 10) + u.name
		}
	}
	if n == 0 {
		return "0"
	}
	return strconv.FormatInt(n, 10) + "B"
}

// quote shows a value in a message, cut to a length that a line can bear.
func quote(s string) string {
	const most = 48
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "…"
	}
	return strconv.Quote(s)
}
