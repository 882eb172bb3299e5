package httpserver

import (
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/dunglas/httpsfv"

	"inbox/internal/fault"
)

// Fields that tell clients how much they may ask (draft-ietf-httpapi-ratelimit-headers-11, sections 3 and 4).
const (
	policyField = "RateLimit-Policy"
	limitField  = "RateLimit"
)

// unnamedQuota names a limit that was reached in the answer of a surface that does not tell more.
const unnamedQuota = "requests"

// serviceLimit is a quota and how much of it is left.
type serviceLimit struct {
	quota fault.Quota
	left  int64
	reset time.Duration // until more is left than now
}

// SetRetry writes Retry-After and, for a limit that was reached, RateLimit-Policy and RateLimit into the header of an answer
// that refuses with 429 or 503. A fault of another kind changes nothing. What the header said of other limits is replaced:
// Retry-After must not end before one of them does (section 6 of the draft).
func SetRetry(header http.Header, f *fault.Fault) {
	if f.Kind != fault.RateLimited && f.Kind != fault.Unavailable {
		return
	}

	setRetryAfter(header, f.RetryAfter)
	header.Del(policyField)
	header.Del(limitField)
	quota := f.Quota
	if quota.Name == "" {
		if f.Kind == fault.Unavailable {
			return
		}
		quota.Name = unnamedQuota
	}

	tellLimits(header, []serviceLimit{{quota: quota, reset: retryAfterOf(header)}})
}

// setRetryAfter rounds up to whole seconds (RFC 9110 section 10.2.3).
func setRetryAfter(header http.Header, after time.Duration) {
	if after <= 0 {
		after = defaultRetryAfter
	}
	header.Set("Retry-After", strconv.FormatInt(seconds(after), 10))
}

func retryAfterOf(header http.Header) time.Duration {
	given, err := strconv.ParseInt(header.Get("Retry-After"), 10, 32)
	if err != nil || given <= 0 {
		return defaultRetryAfter
	}
	return time.Duration(given) * time.Second
}

func seconds(length time.Duration) int64 { return int64(math.Ceil(length.Seconds())) }

// tellLimits writes the two fields; a policy without an amount has no place in the first one.
func tellLimits(header http.Header, limits []serviceLimit) {
	var policies, states httpsfv.List
	for _, limit := range limits {
		if limit.quota.Amount > 0 {
			policies = append(policies, policyItem(limit.quota))
		}
		state := httpsfv.NewItem(limit.quota.Name)
		state.Params.Add("r", max(limit.left, 0))
		state.Params.Add("t", seconds(limit.reset))
		states = append(states, state)
	}

	setField(header, policyField, policies)
	setField(header, limitField, states)
}

func policyItem(quota fault.Quota) httpsfv.Item {
	item := httpsfv.NewItem(quota.Name)
	item.Params.Add("q", quota.Amount)
	if quota.Unit != "" {
		item.Params.Add("qu", quota.Unit)
	}
	if quota.Window > 0 {
		item.Params.Add("w", seconds(quota.Window))
	}
	return item
}

// setField leaves a field out that cannot be written, such as a name outside of ASCII: it is a hint and no more.
func setField(header http.Header, name string, list httpsfv.List) {
	if len(list) == 0 {
		return
	}
	if text, err := httpsfv.Marshal(list); err == nil {
		header.Set(name, text)
	}
}

// completeRefusal returns a 429 what every one has, whichever surface wrote it.
func (w *recorder) completeRefusal(status int) {
	header := w.Header()
	if status != http.StatusTooManyRequests || header.Get(limitField) != "" && header.Get(limitField) != w.counted {
		return
	}
	SetRetry(header, &fault.Fault{Kind: fault.RateLimited, RetryAfter: retryAfterOf(header)})
}
