// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"testing"
)

func TestPercentile(t *testing.T) {
	hundred := make([]float64, 100) // 100, 99, … 1
	for i := range hundred {
		hundred[i] = float64(100 - i)
	}
	for name, tc := range map[string]struct {
		values []float64
		p      float64
		want   float64
	}{
		"of none":      {nil, 50, 0},
		"of one":       {[]float64{7}, 99, 7},
		"middle":       {hundred, 50, 50},
		"last but one": {hundred, 99, 99},
		"least":        {hundred, 0, 1},
		"greatest":     {hundred, 100, 100},
		"of few":       {[]float64{3, 1, 2}, 99, 3},
		"of two":       {[]float64{3, 1}, 50, 1},
	} {
		t.Run(name, func(t *testing.T) {
			if got := percentile(tc.values, tc.p); got != tc.want {
				t.Errorf("%v, want %v", got, tc.want)
			}
		})
	}
	if hundred[0] != 100 {
		t.Error("the values were sorted in place")
	}
}

func TestMedian(t *testing.T) {
	for name, tc := range map[string]struct {
		values []float64
		want   float64
	}{
		"of one":   {[]float64{3}, 3},
		"of two":   {[]float64{3, 1}, 2},
		"of three": {[]float64{9, 1, 2}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			if got := median(tc.values); got != tc.want {
				t.Errorf("%v, want %v", got, tc.want)
			}
		})
	}
	if got := median(nil); !math.IsNaN(got) {
		t.Errorf("%v of none", got)
	}
}
