//! What tenants are promised, as a problem says it.

use super::few;
use super::pool::Pool;
use super::wishes::Asked;
use crate::horizon::extended::Tenant;
use crate::plan::World;

/// Tenants, and the facts about them that a problem can't express.
pub(super) fn told(
    world: &World<'_>,
    pool: &Pool,
    asked: &Asked,
    mut not_said: Vec<String>,
) -> (Vec<Tenant>, Vec<String>) {
    let shares = &world.promises.shares;
    let weighed = shares.values().any(|share| share.weight != 1);
    let (mut tenants, mut above) = (Vec::new(), Vec::new());
    for (id, share) in shares {
        let by_name = pool
            .gpus
            .iter()
            .filter(|gpu| gpu.pinned && gpu.tenant.as_ref() == Some(id));
        let (by_name, runs) = (by_name.count() as u64, asked.running_of(id));
        let most = share.most.map(|most| u64::from(most).saturating_sub(by_name));
        if most.is_some_and(|most| most < runs) {
            above.push(id.to_string());
        }
        tenants.push(Tenant {
            id: id.to_string(),
            most_gpus: most.map(|most| most.max(runs)),
            guaranteed_gpus: u64::from(share.guaranteed).saturating_sub(by_name),
            weight: weighed.then_some(share.weight),
        });
    }
    if !above.is_empty() {
        not_said.push(format!(
            "tenants that have more than they may hold may keep it: {}",
            few(&above)
        ));
    }
    (tenants, not_said)
}
