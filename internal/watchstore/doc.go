// SPDX-License-Identifier: Apache-2.0

// Package watchstore watches objects, and keeps of each what is needed, for all who want the
// same.
//
//	stores := &watchstore.Stores{}
//	s := stores.Acquire(ctx, source, namespace)
//	defer stores.Release(s)
//	s.Follow(follower)
//
// A [Source] is how to list and watch, and what to keep. A [Store] is one watch of it, for
// everyone who acquires it: a [Follower] is told of each change, in order, and whether what
// the store holds is known to be true. After an error it is not, until the API server was
// listed or watched again: a cache that cannot be trusted is no evidence that an object has
// gone. Objects rest as [Record]s, a tenth of the size that maps and slices have; the last
// 128 that changed or were looked at are decoded too, if they are small. Those of more than
// 16 KB rest compressed, at a third of that: a look takes 1 ms more for each 150 KB.
//
// It stands on client-go's reflector and not on its informers: these keep whole objects, one
// store for each watcher, do not tell when a watch fails, and wait up to a minute after a long
// outage. [Retry] is what all reflectors of this module have instead; it hides failures from
// them, and tries again within seconds, since users wait for the end of an outage. A watch
// that says nothing for three minutes is begun anew, as is one whose API server came back
// behind what was seen of it: real ones neither refuse nor feed a watch from a version that
// they have not reached. [NewDynamic] reads events at a third of the cost. [Config] retries
// below a client, for informers that others make.
package watchstore
