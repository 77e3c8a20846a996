package config

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// Bounds on `config check --resolve`.
const (
	probeTime = 5 * time.Second
	probeMost = 16 // hosts that are asked at a time
)

// probes asks the hosts of URLs whether they answer, many at a time; the result has one
// text for each, "" where one answers.
func probes(urls []string) []string {
	out := make([]string, len(urls))
	slots := make(chan struct{}, probeMost)
	client := &http.Client{
		Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	var wg sync.WaitGroup
	for i, u := range urls {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			out[i] = probe(client, u)
		})
	}
	wg.Wait()
	return out
}

// probe sends one HEAD, without headers, user info and query: whatever comes back is an
// answer. Nothing in the text that it returns comes from what may be a secret.
func probe(client *http.Client, raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "is not a URL"
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	ctx, cancel := context.WithTimeout(context.Background(), probeTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, u.String(), http.NoBody)
	if err != nil {
		return "is not a URL"
	}
	resp, err := client.Do(req)
	if err == nil {
		_ = resp.Body.Close()
		return ""
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Sprintf("%s does not answer within %s", u.Host, formatDuration(probeTime))
	}
	var ue *url.Error
	if errors.As(err, &ue) {
		err = ue.Err // without the URL
	}
	return fmt.Sprintf("%s does not answer: %v", u.Host, err)
}
