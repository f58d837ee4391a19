//! The ways in which a job may be divided over GPUs of one kind, and the fewest GPUs of each that hold it.

use super::memo::Memo;
use super::{Division, Limits, Offer, Widths};
use crate::error::SizingError;
use crate::inference::Layout;
use crate::job::{Job, Method, Training};
use crate::model::Model;
use crate::overhead::Card;
use crate::parallel::Parallel;
use poolwright_model::units::Bytes;

/// The widest group where the hosts are not known: what common servers take.
pub(super) const USUAL_HOST: u32 = 8;

/// Tokens of a sequence below which it is not divided further.
const LEAST_CONTEXT: u64 = 8192;

/// The most parts of a sequence over several hosts.
const MOST_CONTEXT: u64 = 64;

/// A layout that needs so many times the GPUs of the smallest is not looked at.
const TOO_MANY: u64 = 2;

/// Pipelines deeper than this are not trained with.
const DEEPEST: u64 = 16;

/// How many GPUs of a kind may be used, and what each has.
#[derive(Clone, Copy)]
pub(super) struct Room {
    pub card: Card,
    pub memory: Bytes,
    pub most: u32,
    /// How many of them may share every layer: those of one host, and of one switch or island.
    pub widest: u32,
}

impl Room {
    pub fn of(offer: &Offer, limits: Limits) -> Self {
        let most = limits.most_gpus(offer);
        let host = limits.host_slots.unwrap_or(USUAL_HOST);
        Room {
            card: offer.card(),
            memory: offer.memory,
            most,
            widest: host.min(most).min(offer.island.unwrap_or(u32::MAX)),
        }
    }
}

/// A division that fits, and what its fullest GPU holds at most.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub division: Division,
    pub safe: Bytes,
}

/// GPUs that share every layer, the widest group first: each layer divides evenly over them.
fn group_widths(model: &Model, limits: Limits, widest: u32) -> Vec<u64> {
    let asked = |ways: &u64| limits.widths.tensor.is_none_or(|tensor| tensor == *ways);
    (1..=u64::from(widest))
        .rev()
        .filter(asked)
        .filter(|ways| divides(model, *ways))
        .collect()
}

/// Heads and MLP divide evenly; keys and values do, or each is held by as many GPUs as every other.
fn divides(model: &Model, ways: u64) -> bool {
    let tensor = Parallel {
        tensor: ways,
        ..Parallel::SINGLE
    };
    tensor.check(model).is_ok()
}

/// What fits in the room: for each layout the fewest GPUs, or just so many as the limits want.
pub(super) fn found(memo: &mut Memo<'_>, room: Room, limits: Limits) -> Result<Vec<Found>, SizingError> {
    match memo.job {
        Job::Inference(_) => serving(memo, room, limits),
        Job::Training(job) => training(memo, job, room, limits),
    }
}

fn serving(memo: &mut Memo<'_>, room: Room, limits: Limits) -> Result<Vec<Found>, SizingError> {
    let mut found = Vec::new();
    for tensor in group_widths(memo.model, limits, room.widest) {
        let most = u64::from(room.most).min(tensor * memo.model.layers);
        let division = |pipeline| Division::Inference(Layout { tensor, pipeline });
        let Some(limits) = staged(limits, tensor) else {
            continue;
        };
        found.extend(fewest(memo, room, limits, tensor, most, division)?);
    }
    Ok(found)
}

/// A pipeline that is asked for makes the number of GPUs; None where another number is wanted.
fn staged(limits: Limits, tensor: u64) -> Option<Limits> {
    let Some(pipeline) = limits.widths.pipeline else {
        return Some(limits);
    };
    let gpus = u32::try_from(tensor.saturating_mul(pipeline)).ok()?;
    limits.gpus.is_none_or(|wanted| wanted == gpus).then_some(Limits {
        gpus: Some(gpus),
        ..limits
    })
}

/// The fewest GPUs by sharding alone, and what other layouts need that is not far more. Only where nothing fits, a
/// sequence is divided over hosts.
fn training(
    memo: &mut Memo<'_>,
    job: &Training,
    room: Room,
    limits: Limits,
) -> Result<Vec<Found>, SizingError> {
    let inside = shapes(memo.model, job, limits, room.widest, Reach::Host);
    let found = fitting(memo, inside, room, limits)?;
    if !found.is_empty() || !limits.spannable {
        return Ok(found);
    }
    let between = shapes(memo.model, job, limits, room.widest, Reach::Hosts);
    fitting(memo, between, room, limits)
}

/// Those of the shapes that fit, and need not far more GPUs than the smallest.
fn fitting(
    memo: &mut Memo<'_>,
    shapes: Vec<Shape>,
    room: Room,
    limits: Limits,
) -> Result<Vec<Found>, SizingError> {
    let mut found: Vec<Found> = Vec::new();
    let mut worth = u64::from(room.most);
    for shape in shapes {
        let division = |units| Division::Training(shape.times(units));
        if let Some(fits) = fewest(memo, room, limits, shape.0.gpus(), worth, division)? {
            worth = worth.min(fits.division.gpus() * TOO_MANY);
            found.push(fits);
        }
    }
    found.retain(|fits| fits.division.gpus() <= worth);
    Ok(found)
}

/// A layout with the fewest replicas that it can have.
struct Shape(Parallel);

impl Shape {
    fn times(&self, units: u64) -> Parallel {
        Parallel {
            data: self.0.data * units,
            ..self.0
        }
    }
}

/// How far the parts of a sequence may lie from each other.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    Host,
    Hosts,
}

/// The layouts worth a look, the plain one first: groups inside a host; stages where there are micro-batches to
/// fill them; long sequences divided; experts spread over the replicas of a host.
fn shapes(model: &Model, job: &Training, limits: Limits, joined: u32, reach: Reach) -> Vec<Shape> {
    // Trainers of quantised weights divide them by sharding alone (bitsandbytes with FSDP), unless told otherwise.
    let limits = match job.method {
        Method::Qlora => Limits {
            widths: limits.widths.or_one(),
            ..limits
        },
        _ => limits,
    };
    let mut widths = group_widths(model, limits, joined);
    widths.reverse();
    let widest = u64::from(limits.host_slots.unwrap_or(USUAL_HOST));
    let asked = limits.widths;
    let mut shapes = Vec::new();
    for (pipeline, interleave) in depths(model, job, asked) {
        for context in contexts(job.seq_len, widest, reach, asked) {
            let inside = |tensor: &u64| tensor * context <= widest;
            let wanted = |tensor: &u64| inside(tensor) == (reach == Reach::Host);
            for tensor in widths.iter().copied().filter(wanted) {
                let shape = Parallel {
                    tensor,
                    sequence: tensor > 1,
                    pipeline,
                    interleave,
                    context,
                    ..Parallel::SINGLE
                };
                match asked.expert {
                    None => {
                        shapes.push(Shape(shape));
                        shapes.extend(expert_parallel(model, shape, widest));
                    }
                    Some(expert) => shapes.push(spread_experts(shape, expert)),
                }
            }
        }
    }
    shapes
}

/// Stages, and parts that each holds: one, or two where the layers divide into so many, which halves the time that
/// stages wait and takes more activations. Or those that are asked for.
fn depths(model: &Model, job: &Training, asked: Widths) -> Vec<(u64, u64)> {
    let stages = asked
        .pipeline
        .map_or_else(|| plain_depths(model, job), |stages| vec![stages]);
    let divided = |stages: u64, parts: u64| stages > 1 && model.layers.is_multiple_of(stages * parts);
    let parts = |stages: u64| match asked.interleave {
        Some(parts) => vec![parts],
        None if divided(stages, 2) => vec![1, 2],
        None => vec![1],
    };
    let each = |stages: u64| parts(stages).into_iter().map(move |parts| (stages, parts));
    stages.into_iter().flat_map(each).collect()
}

/// Divisors of the layers, each at least twice the one before; as many stages as there are micro-batches at most.
fn plain_depths(model: &Model, job: &Training) -> Vec<u64> {
    let mut depths = vec![1];
    for stages in 2..=DEEPEST.min(job.accumulation) {
        let twice = depths.last().is_some_and(|last| stages >= 2 * last);
        if twice && model.layers.is_multiple_of(stages) {
            depths.push(stages);
        }
    }
    depths
}

/// Powers of two that leave each part of a sequence long enough; or what is asked for.
fn contexts(sequence: u64, widest: u64, reach: Reach, asked: Widths) -> Vec<u64> {
    if let Some(ways) = asked.context {
        return vec![ways];
    }
    let most = match reach {
        Reach::Host => widest,
        Reach::Hosts => MOST_CONTEXT,
    };
    let long_enough = |ways: &u64| sequence / ways >= LEAST_CONTEXT && sequence.is_multiple_of(2 * ways);
    std::iter::successors(Some(1u64), |ways| Some(ways * 2))
        .take_while(|ways| *ways <= most)
        .filter(|ways| *ways == 1 || long_enough(ways))
        .collect()
}

/// The same with the experts over as many replicas as go on a host.
fn expert_parallel(model: &Model, shape: Parallel, widest: u64) -> Option<Shape> {
    let experts = model.experts?.count;
    let replicas = widest / (shape.tensor * shape.context).min(widest);
    let expert = (2..=replicas).rev().find(|ways| experts.is_multiple_of(*ways))?;
    Some(spread_experts(shape, expert))
}

/// They are spread over replicas and parts of a sequence together: those of a sequence are there already.
fn spread_experts(shape: Parallel, expert: u64) -> Shape {
    let data = expert / greatest_common_divisor(expert, shape.context);
    Shape(Parallel {
        expert,
        data,
        ..shape
    })
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 {
        a
    } else {
        greatest_common_divisor(b, a % b)
    }
}

/// The division that needs least of each GPU of a kind that cannot hold the job; None where just so many GPUs were
/// asked for and no layout divides over so many.
pub(super) fn least(
    memo: &mut Memo<'_>,
    room: Room,
    limits: Limits,
) -> Result<Option<Division>, SizingError> {
    let (model, job) = (memo.model, memo.job);
    let gpus = u64::from(limits.gpus.unwrap_or(room.most).min(room.most));
    let divides = |unit: u64| unit <= gpus && (limits.gpus.is_none() || gpus.is_multiple_of(unit));
    // One unit, how many of it, and what they make.
    let divisions: Vec<(Division, u64, Division)> = match job {
        Job::Inference(_) => {
            let widths = group_widths(model, limits, room.widest).into_iter();
            let fits = widths.filter(|tensor| divides(*tensor));
            let division = |tensor: u64| {
                let stages = limits
                    .widths
                    .pipeline
                    .unwrap_or((gpus / tensor).min(model.layers));
                let of = |pipeline| Division::Inference(Layout { tensor, pipeline });
                let wanted = limits.gpus.is_none() || stages * tensor == gpus;
                wanted.then(|| (of(1), stages, of(stages)))
            };
            fits.filter_map(division).collect()
        }
        Job::Training(job) => {
            let mut all = shapes(model, job, limits, room.widest, Reach::Host);
            if limits.spannable {
                all.extend(shapes(model, job, limits, room.widest, Reach::Hosts));
            }
            let shapes = all.into_iter();
            let fits = shapes.filter(|shape| divides(shape.0.gpus()));
            let division = |shape: Shape| {
                let units = gpus / shape.0.gpus();
                let of = |units| Division::Training(shape.times(units));
                (of(1), units, of(units))
            };
            fits.map(division).collect()
        }
    };
    let mut least: Option<(Bytes, Division)> = None;
    for (unit, units, division) in divisions {
        let safe = memo.safe(unit, units, division, room.card)?;
        if let Some(safe) = safe.filter(|safe| least.is_none_or(|(less, _)| *safe < less)) {
            least = Some((safe, division));
        }
    }
    Ok(least.map(|(_, division)| division))
}

/// The fewest units of `unit` GPUs that fit, of at most `most` GPUs; or as many as make up the number wanted.
fn fewest(
    memo: &mut Memo<'_>,
    room: Room,
    limits: Limits,
    unit: u64,
    most: u64,
    division: impl Fn(u64) -> Division,
) -> Result<Option<Found>, SizingError> {
    let most = most / unit;
    let Some(gpus) = limits.gpus.map(u64::from) else {
        return memo.fewest(division, most, room.card, room.memory);
    };
    let units = gpus / unit;
    if !gpus.is_multiple_of(unit) || !(1..=most).contains(&units) {
        return Ok(None);
    }
    memo.fits(&division, units, room.card, room.memory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::Catalogue;
    use crate::job::Method;

    fn all(name: &str, job: &Training) -> Vec<Parallel> {
        let model = Catalogue::builtin().resolve(name).unwrap();
        let shapes = shapes(&model, job, Limits::default(), USUAL_HOST, Reach::Host);
        for Shape(shape) in &shapes {
            shape
                .check(&model)
                .unwrap_or_else(|error| panic!("{name}: {shape}: {error}"));
        }
        shapes.into_iter().map(|shape| shape.0).collect()
    }

    #[test]
    fn layouts_are_those_that_divide_and_make_sense() {
        let job = Training::new(Method::Full);
        let plain = all("Llama-3.1-8B", &job);
        assert_eq!(plain[0], Parallel::SINGLE);
        assert_eq!(plain.iter().map(|p| p.tensor).collect::<Vec<_>>(), [1, 2, 4, 8]);
        // Stages want micro-batches, long sequences are divided, experts are spread.
        let filled = Training {
            accumulation: 16,
            ..job.clone()
        };
        assert!(all("Llama-3.1-8B", &filled).iter().any(|p| p.pipeline == 16));
        let long = Training {
            seq_len: 65_536,
            ..job.clone()
        };
        assert!(
            all("Llama-3.1-8B", &long)
                .iter()
                .any(|p| p.context == 8 && p.tensor == 1)
        );
        let experts = all("Mixtral-8x7B", &job);
        assert!(
            experts.iter().any(|p| p.expert == 8 && p.data == 8),
            "{experts:?}"
        );
        assert!(
            plain
                .iter()
                .all(|p| p.expert == 1 && p.pipeline == 1 && p.context == 1)
        );
    }

    #[test]
    fn every_layout_of_every_model_divides() {
        let job = Training {
            accumulation: 16,
            seq_len: 131_072,
            ..Training::new(Method::Full)
        };
        for model in Catalogue::builtin().all() {
            assert!(!all(&model.name, &job).is_empty());
        }
    }
}
