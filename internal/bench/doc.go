// SPDX-License-Identifier: Apache-2.0

// Command bench measures the konnector from outside, through nothing but the two
// API servers: how many creations, statuses, updates and deletions a second go
// through, and how long one takes alone. Beside it, on the same clusters and in the
// same run, it measures two yardsticks:
//
//   - ideal does the least work that moves a claim up, a status down and a
//     deletion through. It is not safe in any way, so it is the practical ceiling.
//   - limited is ideal behind client-go's default rate limit of 5 requests a
//     second, as a konnector is that takes the defaults.
//
// Figures of different machines or runs do not compare; ratios within a run do.
package main
