//! What a GPU holds beside the tensors of a job: the runtime's context and the communication library.

use crate::constants::Constants;
use crate::estimate::Term;

/// Terms for a process on a GPU of this vendor that works together with `gpus - 1` others.
pub fn terms(vendor: &str, gpus: u64) -> Vec<Term> {
    let mut terms = vec![context(vendor)];
    terms.extend(collectives(vendor, gpus));
    terms
}

/// The runtime's context.
pub fn context(vendor: &str) -> Term {
    Term::constant("context", &Constants::builtin().overhead(vendor).context)
}

/// Buffers of the communication library (NCCL, RCCL); none for a GPU alone.
pub fn collectives(vendor: &str, gpus: u64) -> Option<Term> {
    let overhead = Constants::builtin().overhead(vendor);
    match gpus {
        0 | 1 => None,
        2 => Some(Term::constant("collectives", &overhead.collectives_pair)),
        _ => Some(Term::constant("collectives", &overhead.collectives_group)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolwright_model::units::Bytes;

    #[test]
    fn a_gpu_alone_needs_no_communication_buffers() {
        assert_eq!(terms("NVIDIA", 1).len(), 1);
        assert_eq!(terms("NVIDIA", 2)[1].point, Bytes::from_gib(0.53));
        assert_eq!(terms("NVIDIA", 8)[1].safe, Bytes::from_gib(1.06));
        assert_eq!(terms("AMD", 8)[1].point, Bytes::from_gib(1.0));
    }
}
