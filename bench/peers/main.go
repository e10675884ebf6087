// One leader turn of franz-go: decode every subscription, balance, encode every assignment.
// usage: franz BALANCER SECONDS CASE OUTPUT; prints one JSON line, writes the assignments to OUTPUT.
package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"io"
	"os"
	"sort"
	"strconv"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

type group struct {
	partitions map[string]int32
	ids        []string
	messages   [][]byte
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func read(path string) group {
	file, err := os.Open(path)
	must(err)
	defer file.Close()
	in := bufio.NewReaderSize(file, 1<<20)
	bytes := func(n int) []byte {
		b := make([]byte, n)
		_, err := io.ReadFull(in, b)
		must(err)
		return b
	}
	int16_ := func() int { return int(binary.BigEndian.Uint16(bytes(2))) }
	int32_ := func() int { return int(binary.BigEndian.Uint32(bytes(4))) }
	g := group{partitions: map[string]int32{}}
	for n := int32_(); n > 0; n-- {
		name := string(bytes(int16_()))
		g.partitions[name] = int32(int32_())
	}
	for n := int32_(); n > 0; n-- {
		g.ids = append(g.ids, string(bytes(int16_())))
		g.messages = append(g.messages, bytes(int32_()))
	}
	return g
}

// cpu is the processor time of this process so far, in ms; other processes do not disturb it.
func cpu() float64 {
	var u syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e6
}

func turn(b kgo.GroupBalancer, g group) (float64, float64, []kmsg.SyncGroupRequestGroupAssignment) {
	members := make([]kmsg.JoinGroupResponseMember, len(g.ids))
	for i := range members {
		members[i] = kmsg.NewJoinGroupResponseMember()
		members[i].MemberID, members[i].ProtocolMetadata = g.ids[i], g.messages[i]
	}
	begin, used := time.Now(), cpu()
	sort.Slice(members, func(i, j int) bool { return members[i].MemberID < members[j].MemberID })
	balancer, _, err := b.MemberBalancer(members)
	must(err)
	var plan kgo.IntoSyncAssignment
	if may, ok := balancer.(kgo.GroupMemberBalancerOrError); ok {
		plan, err = may.BalanceOrError(g.partitions)
		must(err)
	} else {
		plan = balancer.Balance(g.partitions)
	}
	out := plan.IntoSyncAssignment()
	return float64(time.Since(begin).Nanoseconds()) / 1e6, cpu() - used, out
}

func main() {
	balancer := map[string]kgo.GroupBalancer{
		"cooperative-sticky": kgo.CooperativeStickyBalancer(),
		"sticky":             kgo.StickyBalancer(),
	}[os.Args[1]]
	seconds, err := strconv.ParseFloat(os.Args[2], 64)
	must(err)
	g := read(os.Args[3])
	cold, coldCPU, out := turn(balancer, g)
	times, cpus := []float64{}, []float64{}
	for end := time.Now().Add(time.Duration(seconds * 1e9)); len(times) < 3 || time.Now().Before(end); {
		ms, used, _ := turn(balancer, g)
		times, cpus = append(times, ms), append(cpus, used)
	}
	mean := 0.0
	for _, used := range cpus {
		mean += used / float64(len(cpus))
	}
	sort.Float64s(times)
	sort.Float64s(cpus)
	line, err := json.Marshal(map[string]any{
		"cold_ms": cold, "cold_cpu_ms": coldCPU, "min_ms": times[0], "min_cpu_ms": cpus[0], "median_cpu_ms": cpus[len(cpus)/2], "median_ms": times[len(times)/2], "turns": len(times), "mean_cpu_ms": mean,
	})
	must(err)
	os.Stdout.Write(append(line, '\n'))
	file, err := os.Create(os.Args[4])
	must(err)
	w := bufio.NewWriter(file)
	put := func(b []byte, size any) { must(binary.Write(w, binary.BigEndian, size)); w.Write(b) }
	put(nil, int32(len(out)))
	for _, one := range out {
		put([]byte(one.MemberID), int16(len(one.MemberID)))
		put(one.MemberAssignment, int32(len(one.MemberAssignment)))
	}
	must(w.Flush())
	must(file.Close())
}
