package core

import (
	"strconv"
	"strings"
	"time"

	"tether/internal/resp"
)

const mostMilliseconds = 1<<53 - 1

// milliseconds is a time in whole milliseconds, rounded up, and at least 1 (P-ACQ-2).
func milliseconds(d time.Duration) string {
	ms := int64((d + time.Millisecond - 1) / time.Millisecond)
	return strconv.FormatInt(min(mostMilliseconds, max(1, ms)), 10)
}

// words is the request's command (P-ACQ-1, P-TEMP-1).
func (r *Request) words(now time.Duration) []string {
	want := &r.want
	var words []string
	switch {
	case want.Temporary && want.Seq:
		words = []string{"SETTP", r.keys[0], want.Value, "SEQ"}
	case want.Temporary:
		words = []string{"SETTP", r.keys[0], want.Value, "TOKEN"}
	case len(r.keys) > 1:
		words = append([]string{"LOCK.MACQUIRE", strconv.Itoa(len(r.keys))}, r.keys...)
	default:
		words = []string{"LOCK.ACQUIRE", r.keys[0]}
	}
	if want.Shared {
		words = append(words, "SHARED")
	}
	if want.Of != 0 {
		words = append(words, "PERMITS", strconv.Itoa(want.Permits), "OF", strconv.Itoa(want.Of))
	}
	if !want.Temporary {
		words = append(words, "OWNER", r.label)
	}
	if r.task != "" {
		words = append(words, "TASK", r.task)
	}
	words = append(words, "NOTIFY")
	if want.Lease > 0 {
		words = append(words, "LEASE", milliseconds(want.Lease))
	}
	switch {
	case want.Wait == Forever:
		words = append(words, "WAIT", "0", "PUSH")
	case want.Wait > 0 || want.Acks > 0: // P-ACKS-1
		words = append(words, "WAIT", milliseconds(r.began+want.Wait-now), "PUSH")
	}
	if want.Acks > 0 {
		words = append(words, "ACKS", strconv.Itoa(want.Acks))
		if want.AckTimeout > 0 {
			words = append(words, "ACKTIMEOUT", milliseconds(want.AckTimeout))
		}
	}
	return words
}

// releaseOf is the command both to release and to give up (P-REL-1).
func (r *Request) releaseOf(key string) []string {
	if r.want.Temporary {
		return []string{"DELTP", key}
	}
	return []string{"LOCK.RELEASE", key, "OWNER", r.label, "ALL"}
}

func (r *Request) extensionOf(key string, lease time.Duration) []string {
	return []string{"LOCK.EXTEND", key, milliseconds(lease), "OWNER", r.label}
}

// A push about a request: a word, what belongs to it, and the label, which may have spaces.
func splitPush(text string) (word, said, label string) {
	word, tail, _ := strings.Cut(text, " ")
	if word != "LOST" && word != "FAILED" {
		return word, "", tail
	}
	parts := strings.Split(tail, " ")
	size := 1
	switch parts[0] {
	case "MOVED", "ASK":
		size = 3
	case "NOACKS":
		size = 4
	}
	size = min(size, len(parts))
	return word, strings.Join(parts[:size], " "), strings.Join(parts[size:], " ")
}

// hashTag is what stands between the first braces, if there is anything.
func hashTag(key string) (string, bool) {
	_, rest, _ := strings.Cut(key, "{")
	tag, _, found := strings.Cut(rest, "}")
	return tag, found && tag != ""
}

// Slot is the slot of a key in a cluster: CRC16 (XMODEM) of its hash tag, or of all of it (P-CLUSTER-2).
func Slot(key string) int {
	if tag, is := hashTag(key); is {
		key = tag
	}
	var crc uint16
	for at := range len(key) {
		crc ^= uint16(key[at]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc % 16384)
}

func areOfOneSlot(keys []string) bool {
	for _, key := range keys {
		if Slot(key) != Slot(keys[0]) {
			return false
		}
	}
	return true
}

// isOfReplica tells whether LOCK.CHECK was answered by a replica, which knows of no holds.
func isOfReplica(reply resp.Value) bool {
	return strings.HasSuffix(reply.Str, "this server is a replica")
}
