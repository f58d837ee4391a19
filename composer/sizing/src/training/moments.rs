//! The moments at which memory can be at its peak, each a list of what lives then.
//!
//! ```text
//! start of backward   weights + optimizer + all activations + logits          [+ gradients, accumulating]
//! first layer         weights + optimizer + all activations + head's gradient + one layer + logits kept
//! last layer          weights + optimizer + gradients but the embedding's + one layer + logits kept
//! embedding           weights + optimizer + gradients + the embedding's once more + logits kept
//! optimizer step      weights + optimizer + gradients + temporaries
//! ```
//!
//! Everywhere: what is gathered of sharded weights at that moment, and communication buckets. Under a pipeline
//! sharded weights and their gradients are whole at all moments but the optimizer step.

use super::Peak;
use super::part::{Part, words};
use super::rank::Rank;
use crate::constants::Constants;
use crate::estimate::grouped;
use crate::job::{Method, Offload, Recompute, Sharding};

struct Moment {
    name: &'static str,
    parts: Vec<Part>,
}

impl Moment {
    fn bytes(&self) -> f64 {
        self.parts.iter().map(|part| part.bytes).sum()
    }
}

/// Live tensors of this rank at its fullest moment.
pub(super) fn peak(rank: &Rank<'_>) -> Peak {
    let mut moments = moments(rank);
    moments.sort_by(|a, b| b.bytes().total_cmp(&a.bytes()));
    let others = moments[1..].iter().map(|m| (m.name, m.bytes())).collect();
    let fullest = moments.swap_remove(0);
    let training = &Constants::builtin().training;
    let safe = match rank.job.method {
        Method::Full => &training.live_safe,
        Method::Lora => &training.live_safe_lora,
        Method::Qlora | Method::Peft => &training.live_safe_other,
    }
    .value;
    let bytes = fullest.bytes();
    Peak {
        moment: fullest.name,
        bytes,
        safe_bytes: bytes * safe,
        others,
        terms: fullest
            .parts
            .into_iter()
            .filter(|part| part.bytes > 0.0)
            .map(|part| part.term(1.0))
            .collect(),
    }
}

fn moments(rank: &Rank<'_>) -> Vec<Moment> {
    let states = rank.states();
    let always: Vec<Part> = [states.weights, states.optimizer]
        .into_iter()
        .chain(states.beside)
        .collect();
    let divided = states.gradients;
    let gradients = rank.gradients_of_micro_batches(&divided);
    let accumulating = rank.job.accumulation > 1;
    let moment = |name, parts: Vec<Option<Part>>| Moment {
        name,
        parts: always
            .iter()
            .cloned()
            .chain(parts.into_iter().flatten())
            .collect(),
    };
    let logits_kept = rank.logits_kept();
    let activations = || rank.activations().into_iter().map(Some);

    let mut start = vec![
        accumulating.then(|| gradients.clone()),
        rank.logits(),
        rank.dequantised_of_all(),
        rank.gathered_at_loss(),
    ];
    start.extend(activations());

    let mut first_layer = vec![
        if accumulating {
            Some(gradients.clone())
        } else {
            rank.head_gradient()
        },
        Some(rank.one_layer()),
        rank.dequantised(),
        rank.gathered_in_backward(),
        logits_kept.clone(),
    ];
    first_layer.extend(activations());

    let last_layer = vec![
        Some(rank.without_embedding(&gradients)),
        Some(rank.one_layer()),
        rank.dequantised(),
        rank.gathered_in_backward(),
        logits_kept.clone(),
    ];
    let embedding = vec![
        Some(if rank.gathers() {
            rank.without_embedding(&gradients)
        } else {
            gradients.clone()
        }),
        rank.embedding_gradient(),
        rank.gathered_at_embedding(),
        logits_kept,
    ];
    // What computes the loss has returned, and its output is gone.
    let step = vec![Some(divided), rank.optimizer_temporaries()];

    let mut moments = vec![
        moment("start of backward", start),
        moment("last layer of backward", last_layer),
        moment("embedding's gradient", embedding),
        moment("optimizer step", step),
    ];
    // Where everything is kept, the first layer's activations are among it and the logits outweigh the rest.
    if rank.job.recompute != Recompute::None || rank.stage.kept_layers > rank.stage.layers {
        moments.push(moment("first layer of backward", first_layer));
    }
    moments
}

impl Rank<'_> {
    pub fn gradient_bytes(&self) -> f64 {
        Constants::builtin().states(self.job.precision).gradients
    }

    /// Over how many GPUs a gradient is divided once it is there.
    fn gradients_divided(&self) -> f64 {
        self.divided(Sharding::Gradients).0
    }

    fn gradients_stay(&self) -> bool {
        !self.adapted() && self.job.offload != Offload::Parameters
    }

    /// The head's gradient is the first that exists.
    fn head_gradient(&self) -> Option<Part> {
        if !self.gradients_stay() || !self.stage.last || self.gathers() {
            return None;
        }
        let (b, matrix) = (self.gradient_bytes(), self.embedding_matrix());
        let formula = words!(self, "{b} B x {}", grouped(matrix.round() as u64));
        Some(Part::new(
            "head's gradient",
            b * matrix / self.gradients_divided(),
            formula,
        ))
    }

    /// Gradients before the embedding's is there. Tied, it has been there since the head's; divided, embedding and
    /// head have theirs among what is gathered, until the end.
    fn without_embedding(&self, gradients: &Part) -> Part {
        if !self.gradients_stay() || self.job.accumulation > 1 || self.stays_gathered() {
            return gradients.clone();
        }
        let missing = if self.gathers() {
            self.embeddings()
        } else if self.stage.first && !self.model.tied {
            self.embedding_matrix()
        } else {
            return gradients.clone();
        };
        let b = self.gradient_bytes();
        let formula = words!(
            self,
            "{} - {b} B x {} to come",
            gradients.formula,
            grouped(missing.round() as u64)
        );
        let bytes = gradients.bytes - b * missing / self.gradients_divided();
        Part::new(gradients.name, bytes.max(0.0), formula)
    }

    /// A dense gradient of the embedding, and where it is added to one that is there, their sum: both beside
    /// what is counted with the gradients. Divided weights have one of them among what is gathered.
    fn embedding_gradient(&self) -> Option<Part> {
        if !self.gradients_stay() || !self.stage.first {
            return None;
        }
        let tied = self.model.tied && self.stage.last;
        let added = tied || (self.job.accumulation > 1 && !self.gathers());
        if !added {
            return None;
        }
        let b = if self.fp32_weights() { 4.0 } else { 2.0 };
        let times = if self.gathers() { 1.0 } else { 2.0 };
        let matrix = self.embedding_matrix();
        let formula = words!(self, "{times} x {b} B x {}", grouped(matrix.round() as u64));
        Some(Part::new("embedding gradient", times * b * matrix, formula))
    }
}
