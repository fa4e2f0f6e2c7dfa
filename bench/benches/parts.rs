//! The parts by the clock; see `streamkeeper_bench::parts`. Times of a shared machine drift: instructions do not
//! (`cargo xtask instructions`).

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use streamkeeper_bench::parts::PARTS;

fn parts(criterion: &mut Criterion) {
    for (name, make) in PARTS {
        let mut part = make();
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Elements(part.items));
        group.bench_function("run", |bencher| bencher.iter(|| part.run()));
        group.finish();
    }
}

criterion_group!(benches, parts);
criterion_main!(benches);
