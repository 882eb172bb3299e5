package blob_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"testing"

	"inbox/internal/blob"
	"inbox/internal/blob/blobtest"
)

// BenchmarkS3 puts and gets contents against a gateway on loopback. Each put writes a content that the bucket does not have.
func BenchmarkS3(b *testing.B) {
	server := blobtest.StartServer(b)
	store := bucket(b, server, func(o *blob.S3Options) { o.MaxBytes = blob.DefaultMaxBytes })
	serial := uint64(0)
	for _, size := range []int{1 << 10, 1 << 20} {
		content := bytes.Repeat([]byte("x"), size)
		b.Run(fmt.Sprintf("put/%d", size), func(b *testing.B) {
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				serial++
				binary.BigEndian.PutUint64(content, serial)
				if _, _, err := store.Put(b.Context(), bytes.NewReader(content)); err != nil {
					b.Fatal(err)
				}
			}
		})

		digest, err := store.PutBytes(b.Context(), content)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("get/%d", size), func(b *testing.B) {
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				read, err := store.Open(b.Context(), digest)
				if err != nil {
					b.Fatal(err)
				}
				if n, err := io.Copy(io.Discard, read); err != nil || n != int64(size) {
					b.Fatal(n, err)
				}
				if err := read.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
