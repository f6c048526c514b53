//! Plans of Substrait: what they tell is what their SQL tells, and what no SQL can say is refused.
//!
//! The plans are made by another session of the engine, over tables of the same names and columns with nothing in them.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow_flight::sql::{
    ActionCreatePreparedStatementResult, ActionCreatePreparedSubstraitPlanRequest, Any, CommandStatementSubstraitPlan,
    ProstMessageExt, SubstraitPlan,
};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::datasource::empty::EmptyTable;
use datafusion::error::DataFusionError;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion_substrait::logical_plan::producer::to_substrait_plan;
use datafusion_substrait::substrait::proto::read_rel::{LocalFiles, ReadType};
use datafusion_substrait::substrait::proto::rel::RelType;
use datafusion_substrait::substrait::proto::rel_common::{Emit, EmitKind};
use datafusion_substrait::substrait::proto::{
    CrossRel, DdlRel, ExtensionLeafRel, Plan, PlanRel, ReadRel, Rel, RelCommon, RelRoot, SortRel, WriteRel, plan_rel,
};
use futures::StreamExt;
use prost::Message;
use tonic::{Code, Status};

use super::corpus::over_a_part;
use super::house::{House, login};
use super::secrets::found;
use super::ways::{Answer, read};
use crate::support::client::{Client, code, prepared};
use crate::support::on_runtime;

#[test]
fn a_plan_answers_as_its_sql_does() {
    on_runtime(async {
        let house = House::open().await;
        let owner = house.client("owner");
        for sql in SAME {
            let expected = sorted(owner.text(sql).await.unwrap());
            assert!(!expected.is_empty(), "{sql}");
            for form in [Form::Written, Form::Optimized] {
                let plan = command(&plan(sql, form).await.unwrap());
                let told = read(&owner, plan.clone()).await.unwrap_or_else(|status| panic!("{sql} {form:?}: {status}"));
                assert_eq!(told.rows, expected, "{sql} {form:?}");
                assert_eq!(told.schemas[0], told.schemas[1], "{sql} {form:?}");
                assert_eq!(owner.schema(plan).await.unwrap(), told.schemas[0], "{sql} {form:?}");
            }
        }
    });
}

#[test]
fn a_prepared_plan_runs_and_is_its_owners() {
    on_runtime(async {
        let house = House::open().await;
        let (owner, analyst) = (house.client("owner"), house.client("analyst"));
        let plan = plan("SELECT count(*) AS n FROM orders", Form::Written).await.unwrap();
        let handle = prepare(&owner, &plan).await.unwrap().prepared_statement_handle;
        assert_eq!(read(&owner, prepared(handle.clone())).await.unwrap().rows, ["9"]);
        assert_eq!(read(&owner, prepared(handle.clone())).await.unwrap().rows, ["9"], "and again");
        assert_eq!(code(&read(&analyst, prepared(handle)).await), Code::NotFound);
        // The same plan is another question when somebody else asks.
        let handle = prepare(&analyst, &plan).await.unwrap().prepared_statement_handle;
        assert_eq!(read(&analyst, prepared(handle)).await.unwrap().rows, ["5"]);
        assert_eq!(code(&prepare(&house.client("stranger"), &plan).await), Code::InvalidArgument);
        // A plan has rows, so that it is no update.
        assert_eq!(code(&owner.put(command(&plan)).await), Code::InvalidArgument);
    });
}

/// With conditions in the scan, where the engine's own reader leaves them: there they would be computed before the
/// policy's.
#[test]
fn hostile_plans_over_a_part_tell_nothing_but_that_part() {
    on_runtime(async {
        let house = House::open().await;
        let (analyst, owner) = (house.client("analyst"), house.client("owner"));
        let (mut plans, mut in_scans) = (Vec::new(), 0);
        for sql in over_a_part() {
            for form in [Form::Written, Form::Optimized] {
                let over = async |table: &str| plan(&sql.replace("{t}", table), form).await;
                if let (Some(part), Some(copy)) = (over("orders").await, over("seen").await) {
                    in_scans += usize::from(format!("{part:?}").contains("}), filter: Some("));
                    plans.push((format!("{sql} {form:?}"), command(&part), command(&copy)));
                }
            }
        }
        assert!(plans.len() > 150, "{}", plans.len());
        assert!(in_scans > 30, "{in_scans}");
        let answers: Vec<_> = futures::stream::iter(plans)
            .map(|(name, part, copy)| {
                let (first, second) = (analyst.with(&login("analyst")), analyst.with(&login("analyst")));
                let owner = owner.clone();
                async move {
                    let seen = plain(read(&first, part.clone()).await, "orders");
                    let expected = plain(read(&second, copy).await, "seen");
                    let whole = plain(read(&owner, part).await, "orders");
                    (name, seen, expected, whole, found(&first))
                }
            })
            .buffered(4)
            .collect()
            .await;
        let (mut answered, mut failed, mut otherwise, mut wrong) = (0, 0, 0, Vec::new());
        for (name, seen, expected, whole, leaks) in answers {
            if seen != expected || !leaks.is_empty() {
                wrong.push(format!("{name}: {leaks:?}\n  part {seen:?}\n  copy {expected:?}"));
            }
            *(if seen.is_ok() { &mut answered } else { &mut failed }) += 1;
            otherwise += usize::from(whole != seen);
        }
        assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
        assert!(answered > 100 && otherwise > 60, "{answered} answered, {failed} failed, {otherwise} otherwise");
    });
}

#[test]
fn a_plan_reads_views_and_information_schema_and_nothing_without_a_name() {
    on_runtime(async {
        let house = House::open().await;
        let analyst = House::session_on(&house.client("analyst")).await;
        analyst.update("CREATE VIEW mine AS SELECT id FROM orders").await.unwrap();
        let mine = Schema::new(vec![Field::new("id", DataType::Int64, false)]);
        let of_mine = plan_over("SELECT id FROM mine", Form::Optimized, &[("mine", &mine)]).await.unwrap();
        assert_eq!(read(&analyst, command(&of_mine)).await.unwrap().rows, ["1", "3", "4", "5", "8"]);

        for (table, column) in [("tables", "table_name"), ("df_settings", "name")] {
            let named = Schema::new(vec![Field::new(column, DataType::Utf8, false)]);
            let plan = plan_over(&format!("SELECT {column} FROM x"), Form::Written, &[("x", &named)]).await.unwrap();
            let told = read(&analyst, command(&renamed(plan, &format!("information_schema.{table}")))).await.unwrap();
            let same = analyst.text(&format!("SELECT {column} FROM information_schema.{table}")).await.unwrap();
            assert!(told.rows.len() > 5, "{table}: {told:?}");
            assert_eq!(told.rows, sorted(same), "{table}");
        }

        // A column that it has not, a type that it has not.
        for (name, kind) in [("nothing", DataType::Int64), ("id", DataType::Utf8)] {
            let other = Schema::new(vec![Field::new(name, kind, true)]);
            let plan = plan_over(&format!("SELECT {name} FROM mine"), Form::Written, &[("mine", &other)]).await;
            assert_eq!(code(&read(&analyst, command(&plan.unwrap())).await), Code::InvalidArgument, "{name}");
        }
        // What is hidden and what is absent, by all forms of a name.
        for (hidden, absent) in [("zqtable", "zqtablf"), ("zqcellar.wine", "zqcellas.wine")] {
            let refusal = async |name: &str| {
                let plan = renamed(plan("SELECT id FROM orders", Form::Written).await.unwrap(), name);
                let status = read(&analyst, command(&plan)).await.unwrap_err();
                (status.code(), status.message().replace(name, "NAME"))
            };
            let (hidden, absent) = (refusal(hidden).await, refusal(absent).await);
            assert_eq!(hidden, absent);
            assert_eq!(hidden.0, Code::InvalidArgument);
        }
    });
}

#[test]
fn what_no_sql_can_say_is_refused() {
    on_runtime(async {
        let house = House::open().await;
        let owner = house.client("owner");
        let good = plan("SELECT id FROM orders", Form::Written).await.unwrap();
        assert_eq!(read(&owner, command(&good)).await.unwrap().rows.len(), 9);

        let scan = read_of(&good);
        let files = ReadRel { read_type: Some(ReadType::LocalFiles(LocalFiles::default())), ..scan.clone() };
        let emit = |fields: Vec<i32>| {
            let common =
                RelCommon { emit_kind: Some(EmitKind::Emit(Emit { output_mapping: fields })), ..Default::default() };
            RelType::Read(Box::new(ReadRel { common: Some(common), ..scan.clone() }))
        };
        let named = |names: &[&str]| match renamed(good.clone(), &names.join(".")).relations.remove(0).rel_type {
            Some(plan_rel::RelType::Root(RelRoot { input: Some(Rel { rel_type: Some(relation) }), .. })) => relation,
            _ => panic!("not a root"),
        };
        for (what, relation, expected) in [
            ("files", RelType::Read(Box::new(files)), Code::Unimplemented),
            ("nothing to read", RelType::Read(Box::default()), Code::Unimplemented),
            (
                "no columns",
                RelType::Read(Box::new(ReadRel { base_schema: None, ..scan.clone() })),
                Code::InvalidArgument,
            ),
            ("a write", RelType::Write(Box::<WriteRel>::default()), Code::Unimplemented),
            ("a definition", RelType::Ddl(Box::<DdlRel>::default()), Code::Unimplemented),
            ("an extension", RelType::ExtensionLeaf(ExtensionLeafRel::default()), Code::Unimplemented),
            ("half a join", RelType::Cross(Box::<CrossRel>::default()), Code::InvalidArgument),
            ("a sort of nothing", RelType::Sort(Box::<SortRel>::default()), Code::Unimplemented),
            ("a field that is not there", emit(vec![99]), Code::InvalidArgument),
            ("a field before the first", emit(vec![-1]), Code::InvalidArgument),
            ("a field again and again", emit(vec![0; 100]), Code::InvalidArgument),
            ("a name of four parts", named(&["a", "b", "c", "d"]), Code::InvalidArgument),
        ] {
            let refused = read(&owner, command(&root(relation))).await;
            assert_eq!(code(&refused), expected, "{what}: {refused:?}");
        }
        let empty = Plan::default();
        let rootless = Plan {
            relations: vec![PlanRel { rel_type: Some(plan_rel::RelType::Root(RelRoot::default())) }],
            ..Plan::default()
        };
        let twice = Plan { relations: [good.relations.clone(), good.relations.clone()].concat(), ..good.clone() };
        for (plan, expected) in
            [(empty, Code::InvalidArgument), (rootless, Code::InvalidArgument), (twice, Code::Unimplemented)]
        {
            assert_eq!(code(&read(&owner, command(&plan)).await), expected);
        }
        let damaged = CommandStatementSubstraitPlan { plan: Some(substrait(vec![0xff; 9])), transaction_id: None };
        assert_eq!(code(&read(&owner, damaged.as_any()).await), Code::InvalidArgument);
        let long = CommandStatementSubstraitPlan { plan: Some(substrait(vec![0; 2 << 20])), transaction_id: None };
        assert_eq!(code(&read(&owner, long.as_any()).await), Code::InvalidArgument);
        // A chain of relations as deep as it can be written.
        let mut deep = good.clone();
        for _ in 0..200 {
            deep = wrapped(deep);
        }
        assert_eq!(code(&read(&owner, command(&deep)).await), Code::InvalidArgument);
        // The planning threads are all still there.
        for _ in 0..8 {
            assert_eq!(owner.text("SELECT count(*) FROM orders").await.unwrap(), ["9"]);
        }
    });
}

/// Whether the engine has been at it: conditions and columns are then in the scans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Written,
    Optimized,
}

/// The plan of SQL over the tables of the house; none for what no plan can say.
async fn plan(sql: &str, form: Form) -> Option<Plan> {
    let orders = orders();
    plan_over(sql, form, &[("orders", &orders), ("seen", &orders)]).await
}

async fn plan_over(sql: &str, form: Form, tables: &[(&str, &Schema)]) -> Option<Plan> {
    let config = SessionConfig::new().with_default_catalog_and_schema("shop", "public");
    let session = SessionContext::new_with_config(config);
    for (name, schema) in tables {
        session.register_table(*name, Arc::new(Filtered(EmptyTable::new(Arc::new((*schema).clone()))))).unwrap();
    }
    let state = session.state();
    let plan = state.create_logical_plan(sql).await.ok()?;
    let plan = if form == Form::Optimized { state.optimize(&plan).ok()? } else { plan };
    encoded(&plan, &state)
}

fn encoded(plan: &datafusion::logical_expr::LogicalPlan, state: &SessionState) -> Option<Plan> {
    to_substrait_plan(plan, state).ok().map(|plan| *plan)
}

fn orders() -> Schema {
    let text = |name: &str| Field::new(name, DataType::Utf8, true);
    let number = |name: &str, nullable| Field::new(name, DataType::Int64, nullable);
    Schema::new(vec![
        number("id", false),
        number("v", true),
        text("region"),
        number("amount", false),
        text("card"),
        text("note"),
    ])
}

/// Takes every condition into its scans.
#[derive(Debug)]
struct Filtered(EmptyTable);

#[async_trait]
impl TableProvider for Filtered {
    fn schema(&self) -> SchemaRef {
        self.0.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        self.0.scan(state, projection, filters, limit).await
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>, DataFusionError> {
        Ok(vec![TableProviderFilterPushDown::Exact; filters.len()])
    }
}

fn command(plan: &Plan) -> Any {
    CommandStatementSubstraitPlan { plan: Some(substrait(plan.encode_to_vec())), transaction_id: None }.as_any()
}

fn substrait(plan: Vec<u8>) -> SubstraitPlan {
    SubstraitPlan { plan: plan.into(), version: "0.85.0".to_owned() }
}

async fn prepare(client: &Client, plan: &Plan) -> Result<ActionCreatePreparedStatementResult, Status> {
    let plan = Some(substrait(plan.encode_to_vec()));
    let request = ActionCreatePreparedSubstraitPlanRequest { plan, transaction_id: None };
    let bodies = client.action("CreatePreparedSubstraitPlan", request.as_any().encode_to_vec()).await?;
    Ok(Any::decode(bodies[0].clone()).unwrap().unpack().unwrap().unwrap())
}

fn root(relation: RelType) -> Plan {
    let root = RelRoot { input: Some(Rel { rel_type: Some(relation) }), names: Vec::new() };
    Plan { relations: vec![PlanRel { rel_type: Some(plan_rel::RelType::Root(root)) }], ..Plan::default() }
}

fn relation(plan: &Plan) -> &Rel {
    match &plan.relations[0].rel_type {
        Some(plan_rel::RelType::Root(root)) => root.input.as_ref().unwrap(),
        _ => panic!("not a root"),
    }
}

/// The scan below a plan's projections.
fn read_of(plan: &Plan) -> ReadRel {
    let mut relation = relation(plan);
    loop {
        relation = match &relation.rel_type {
            Some(RelType::Read(read)) => return (**read).clone(),
            Some(RelType::Project(project)) => project.input.as_ref().unwrap(),
            other => panic!("{other:?}"),
        };
    }
}

/// The scan of a plan alone, of another table.
fn renamed(plan: Plan, name: &str) -> Plan {
    let mut read = read_of(&plan);
    match &mut read.read_type {
        Some(ReadType::NamedTable(table)) => table.names = name.split('.').map(str::to_owned).collect(),
        other => panic!("{other:?}"),
    }
    root(RelType::Read(Box::new(read)))
}

/// With a FETCH around it.
fn wrapped(plan: Plan) -> Plan {
    let input = Some(Box::new(relation(&plan).clone()));
    root(RelType::Fetch(Box::new(datafusion_substrait::substrait::proto::FetchRel { input, ..Default::default() })))
}

/// With one name for both tables.
fn plain(answer: Result<Answer, Status>, table: &str) -> Result<String, String> {
    match answer {
        Ok(answer) => Ok(format!("{answer:?}").replace(table, "TABLE")),
        Err(status) => Err(format!("{:?} {}", status.code(), status.message()).replace(table, "TABLE")),
    }
}

fn sorted(mut rows: Vec<String>) -> Vec<String> {
    rows.sort();
    rows
}

const SAME: &[&str] = &[
    "SELECT * FROM orders",
    "SELECT id, amount + 1 AS more FROM orders WHERE region = 'EU' AND v IS NOT NULL",
    "SELECT region, count(*) AS n, sum(amount) AS s FROM orders GROUP BY region HAVING count(*) > 1",
    "SELECT id FROM orders ORDER BY amount DESC, id LIMIT 3",
    "SELECT a.id, b.note FROM orders a JOIN seen b ON a.id = b.id",
    "SELECT a.id, b.id AS other FROM orders a LEFT JOIN seen b ON a.id = b.id + 1",
    "SELECT id FROM orders UNION ALL SELECT id FROM seen",
    "SELECT id FROM orders WHERE id IN (SELECT id FROM seen)",
    "SELECT CASE WHEN id > 3 THEN 'late' ELSE upper(region) END AS x FROM orders",
    "SELECT id, sum(amount) OVER (PARTITION BY region ORDER BY id) AS running FROM orders",
    "SELECT DISTINCT region FROM orders",
    "SELECT 1 + 1 AS two, 'x' AS x",
];
