//! Operations that eager PyTorch starts one by one: a small batch waits for the host, not for the GPU.

use super::Shares;
use crate::constants::{Constants, Engine};
use crate::job::{Job, Method};
use crate::layer::Layers;
use crate::model::Model;

/// Seconds in which a host starts the operations of all layers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Launches {
    pub(super) forward: f64,
    pub(super) backward: f64,
    /// Of the optimizer.
    pub(super) step: f64,
}

impl Launches {
    /// None where kernels are fused or captured in graphs.
    pub fn of(model: &Model, job: &Job) -> Option<Launches> {
        let constants = Constants::builtin();
        let plain = Layers::plain(model);
        let layers = match job {
            Job::Inference(job) => {
                constants
                    .serving
                    .engine(&job.engine)
                    .filter(|engine| Engine::is_library(engine))?;
                Layers {
                    caches: true,
                    ..plain
                }
            }
            Job::Training(job) => {
                constants.frameworks.named(&job.framework)?.replayed.as_ref()?;
                let full = job.method == Method::Full;
                Layers {
                    gradient: if full { 2.0 } else { 0.0 },
                    adapters: (!full).then(|| (&job.adapters, job.adapters.rank_for(model))),
                    ..plain
                }
            }
        };
        let graphs = layers.graphs(1.0);
        let each = Shares::builtin().launch_s.value;
        let mut all = Launches::default();
        for graph in model.in_order(&graphs) {
            let (operations, trained) = graph.launches();
            let trained = each * trained as f64;
            all.forward += each * operations as f64;
            // A gradient for each input, and for each trained weight.
            all.backward += each * operations as f64 + trained;
            all.step += trained;
        }
        Some(all)
    }

    /// On a host that takes so many times as long.
    pub(super) fn times(self, factor: f64) -> Launches {
        Launches {
            forward: factor * self.forward,
            backward: factor * self.backward,
            step: factor * self.step,
        }
    }
}
