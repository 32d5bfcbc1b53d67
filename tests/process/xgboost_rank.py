"""A rank of a training by XGBoost: trains on its part of a file of rows, and rank 0 saves the model.

usage: xgboost_rank.py FOLDER ROWS OUTPUT ROUNDS PARAMETERS [NAME=VALUE ...], of which FOLDER has the package `xgboost`
"""

import json
import sys


def main():
    folder, rows, output, rounds, parameters = sys.argv[1:6]
    sys.path.insert(0, folder)
    import xgboost

    xgboost.rabit.init([argument.encode() for argument in sys.argv])
    matrix = xgboost.DMatrix(rows)
    booster = xgboost.train(json.loads(parameters), matrix, int(rounds), evals=[(matrix, "train")], verbose_eval=False)
    # Ranks evaluate their parts together.
    error = booster.eval(matrix)
    if xgboost.rabit.get_rank() == 0:
        booster.save_model(output)
        xgboost.rabit.tracker_print(f"model {error}\n")
    xgboost.rabit.finalize()


if __name__ == "__main__":
    main()
