// Package signing bounds how many private key operations run at the same time. An RSA-2048 signature costs a millisecond
// of a processor, thirty times what accepting a message costs; without the bound a burst of answers takes the
// processors away from the peers who wait for their acknowledgement. It signs nothing itself.
package signing

import "runtime"

// slots leave at least half of the processors to everything else.
var slots = make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))

// Do runs work, which makes one signature, when a slot is free. Work must not wait for anything.
func Do(work func() error) error {
	slots <- struct{}{}
	defer func() { <-slots }()
	return work()
}
