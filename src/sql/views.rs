//! Kept views in a plan: in the place of each stands what its text reads, for the one who asks.
//!
//! A view gives nobody a right. Its text is planned and judged anew for every reader, who needs `select` on the view
//! and on all that it reads; whoever did not write it is told nothing of what is in it. Names are looked up as they
//! were where it was made, and never in a session. Runs nothing.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::catalog::TableProvider;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{Column, TableReference};
use datafusion::config::ConfigOptions;
use datafusion::datasource::source_as_provider;
use datafusion::error::DataFusionError;
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::{CreateView, DdlStatement, LogicalPlan, LogicalPlanBuilder, TableScan};
use datafusion::prelude::Expr;
use futures::FutureExt;
use futures::future::LocalBoxFuture;

use super::access::{self, Asker};
use super::caps::SqlCaps;
use super::{expansion, failure, policy};
use crate::catalog::guarded::{Guarded, Owner};
use crate::status::{Class, Failure};
use crate::storage::{Definition, FullName, KeptView};
use crate::workspace::without_session;

/// The plan with what its kept views read in it, all the way down.
pub(super) async fn expand(plan: LogicalPlan, asker: &Asker<'_>, caps: &SqlCaps) -> Result<LogicalPlan, Failure> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "others are no views")]
    let open = match &plan {
        LogicalPlan::Ddl(DdlStatement::CreateView(view)) => vec![asker.full_name(&view.name)],
        _ => Vec::new(),
    };
    let mut views = Views { asker, caps, read: HashMap::new(), open };
    views.expand(plan).await
}

/// How the view can be kept: not, when it would not mean the same without the session. `written` is what it reads as
/// the session planned it.
pub(super) async fn definition(
    view: &CreateView,
    written: &LogicalPlan,
    asker: &Asker<'_>,
    caps: &SqlCaps,
) -> Option<Definition> {
    if reads_session(written) {
        return None;
    }
    let defaults = &asker.state.config_options().catalog;
    let definition = Definition {
        sql: view.definition.clone()?,
        catalog: defaults.default_catalog.clone(),
        schema: defaults.default_schema.clone(),
    };
    let again = planned(&definition, &state_for(&definition, asker), caps).await;
    again.is_ok_and(|again| again == *written).then_some(definition)
}

/// What one statement has read of views so far.
struct Views<'a> {
    asker: &'a Asker<'a>,
    caps: &'a SqlCaps,
    read: HashMap<FullName, LogicalPlan>,
    /// Those that are being read, outermost first.
    open: Vec<FullName>,
}

impl Views<'_> {
    fn expand(&mut self, plan: LogicalPlan) -> LocalBoxFuture<'_, Result<LogicalPlan, Failure>> {
        async move {
            let (named, mut relations) = kept_views(&plan)?;
            for view in &named {
                if !self.read.contains_key(&view.name) {
                    if self.read.len() >= MAX_VIEWS {
                        return Err(Failure::about_request(
                            Class::InvalidArgument,
                            format!("the statement reads more than {MAX_VIEWS} kept views"),
                        ));
                    }
                    let read = self.read(view).await?;
                    self.read.insert(view.name.clone(), read);
                }
                let behind = self.read.get(&view.name).map_or(0, expansion::scans);
                relations = relations.saturating_add(behind);
                if relations > expansion::MAX_RELATIONS {
                    return Err(expansion::too_many());
                }
            }
            if named.is_empty() { Ok(plan) } else { self.put_in(plan) }
        }
        .boxed_local()
    }

    fn put_in(&self, plan: LogicalPlan) -> Result<LogicalPlan, Failure> {
        #[expect(clippy::wildcard_enum_match_arm, reason = "only scans are replaced")]
        plan.transform_up_with_subqueries(|node| match node {
            LogicalPlan::TableScan(scan) => match kept_view(&scan).and_then(|view| self.read.get(&view.name)) {
                Some(read) if scan.projection.is_none() && scan.filters.is_empty() && scan.fetch.is_none() => {
                    let read = LogicalPlanBuilder::from(read.clone()).alias(scan.table_name)?.build()?;
                    Ok(Transformed::yes(read))
                }
                Some(_) => {
                    Err(DataFusionError::Internal("a plan was optimized before its views were in it".to_owned()))
                }
                None => Ok(Transformed::no(LogicalPlan::TableScan(scan))),
            },
            // Nullability may have changed below.
            above => above.recompute_schema().map(Transformed::yes),
        })
        .map(|transformed| transformed.data)
        .map_err(|error| failure::of_planning(&error))
    }

    /// What the text of `view` reads, if the asker may.
    async fn read(&mut self, view: &Named) -> Result<LogicalPlan, Failure> {
        if let Some(refusal) = access::table_refusal(&view.written, view.guarded(), self.asker) {
            return Err(refusal);
        }
        let Some(kept) = view.kept() else { return Err(Failure::internal("a view lost its text")) };
        if self.open.contains(&view.name) || self.open.len() >= MAX_DEPTH {
            return Err(view.of_reader(
                self.asker,
                Failure::about_request(
                    Class::InvalidArgument,
                    format!("view `{}` reads itself, or views of more than {MAX_DEPTH} others", view.name.table),
                ),
            ));
        }
        self.open.push(view.name.clone());
        let read = self.behind(kept).await.map_err(|failure| view.of_reader(self.asker, failure));
        self.open.pop();
        read
    }

    async fn behind(&mut self, view: &KeptView) -> Result<LogicalPlan, Failure> {
        let state = state_for(view.definition(), self.asker);
        let plan = planned(view.definition(), &state, self.caps).await?;
        let plan = self.expand(plan).await?;
        let there = Asker::new(&state, self.asker.principal, self.asker.authorizer, self.asker.keeping);
        shaped(access::query(plan, &there)?, &view.schema())
    }
}

/// A kept view in a plan.
struct Named {
    name: FullName,
    /// As the statement names it.
    written: TableReference,
    provider: Arc<dyn TableProvider>,
}

impl Named {
    fn guarded(&self) -> Option<&Guarded> {
        self.provider.downcast_ref::<Guarded>()
    }

    fn kept(&self) -> Option<&KeptView> {
        self.guarded()?.real().downcast_ref::<KeptView>()
    }

    /// What a reader is told of a failure behind the view.
    fn of_reader(&self, asker: &Asker<'_>, failure: Failure) -> Failure {
        match self.guarded().map(Guarded::owner) {
            Some(Owner::Kept(_, maker)) if maker.is(asker.principal.key()) => failure,
            _ => failure.told_as(format!("view `{}` reads something that is not there for you", self.name.table)),
        }
    }
}

/// The kept views of a plan, each as often as it is named, and how many relations there are beside them.
fn kept_views(plan: &LogicalPlan) -> Result<(Vec<Named>, usize), Failure> {
    let (mut named, mut others) = (Vec::new(), 0_usize);
    plan.apply_with_subqueries(|node| {
        let view = if let LogicalPlan::TableScan(scan) = node { kept_view(scan) } else { None };
        match view {
            Some(view) => named.push(view),
            None => others = others.saturating_add(usize::from(node.inputs().is_empty())),
        }
        Ok(TreeNodeRecursion::Continue)
    })
    .map_err(|error| failure::of_planning(&error))?;
    Ok((named, others))
}

fn kept_view(scan: &TableScan) -> Option<Named> {
    let provider = source_as_provider(&scan.source).ok()?;
    let guarded = provider.downcast_ref::<Guarded>()?;
    let Owner::Kept(name, _) = guarded.owner() else { return None };
    guarded.real().is::<KeptView>().then(|| Named {
        name: name.clone(),
        written: scan.table_name.clone(),
        provider: Arc::clone(&provider),
    })
}

fn reads_session(plan: &LogicalPlan) -> bool {
    let mut found = false;
    let walked = plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && let Some(table) = policy::guarded(scan)
        {
            found = found || table.table().is_none_or(|table| matches!(table.owner(), Owner::Session));
        }
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    walked.is_err() || found
}

/// What a view's text is planned in: the asker's catalogs and functions, the maker's defaults, nobody's session.
fn state_for(definition: &Definition, asker: &Asker<'_>) -> SessionState {
    let mut config = asker.state.config().clone();
    let options = config.options_mut();
    let recursion_limit = options.sql_parser.recursion_limit;
    options.sql_parser = ConfigOptions::new().sql_parser;
    options.sql_parser.recursion_limit = recursion_limit;
    options.catalog.default_catalog.clone_from(&definition.catalog);
    options.catalog.default_schema.clone_from(&definition.schema);
    SessionStateBuilder::new_from_existing(asker.state.clone())
        .with_config(config)
        .with_catalog_list(without_session(asker.state.catalog_list()))
        .build()
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the text of a view makes one kind of plan")]
async fn planned(definition: &Definition, state: &SessionState, caps: &SqlCaps) -> Result<LogicalPlan, Failure> {
    match super::planned(&definition.sql, state, caps).await? {
        LogicalPlan::Ddl(DdlStatement::CreateView(view)) => Ok(Arc::unwrap_or_clone(view.input)),
        _ => Err(Failure::internal("the text of a kept view is not one of a view")),
    }
}

/// The columns that the view has, whatever else its tables have come to have.
fn shaped(plan: LogicalPlan, schema: &SchemaRef) -> Result<LogicalPlan, Failure> {
    let changed = || {
        Failure::new(
            Class::InvalidArgument,
            "what the view reads has other columns than when it was made; make it again",
        )
    };
    let mut columns = Vec::with_capacity(schema.fields().len());
    for field in schema.fields() {
        let mut same = plan.schema().iter().filter(|(_, there)| there.name() == field.name());
        match (same.next(), same.next()) {
            (Some((qualifier, there)), None) if there.data_type() == field.data_type() => {
                columns.push(Expr::Column(Column::new(qualifier.cloned(), there.name())));
            }
            _ => return Err(changed()),
        }
    }
    LogicalPlanBuilder::from(plan)
        .project(columns)
        .and_then(LogicalPlanBuilder::build)
        .map_err(|error| failure::of_planning(&error))
}

/// Each is planned, on a thread that cannot be stopped.
const MAX_VIEWS: usize = 256;
/// Views of views of views.
const MAX_DEPTH: usize = 16;
