// AssignOp: how a value is put into another one.
#ifndef PS_INTERNAL_ASSIGN_OP_H_
#define PS_INTERNAL_ASSIGN_OP_H_

#include "ps/internal/utils.h"

namespace ps {

enum AssignOp { ASSIGN, PLUS, MINUS, TIMES, DIVIDE, AND, OR, XOR };

// `into` becomes `into op value`. AND, OR and XOR are for integers: AssignFuncInt.
template <typename T>
inline void AssignFunc(const T& value, AssignOp op, T* into) {
  switch (op) {
    case ASSIGN:
      *into = value;
      return;
    case PLUS:
      *into += value;
      return;
    case MINUS:
      *into -= value;
      return;
    case TIMES:
      *into *= value;
      return;
    case DIVIDE:
      *into /= value;
      return;
    default:
      LOG(FATAL) << "AND, OR and XOR are for integers: AssignFuncInt";
  }
}

template <typename T>
inline void AssignFuncInt(const T& value, AssignOp op, T* into) {
  switch (op) {
    case AND:
      *into &= value;
      return;
    case OR:
      *into |= value;
      return;
    case XOR:
      *into ^= value;
      return;
    default:
      AssignFunc(value, op, into);
  }
}

}  // namespace ps

#endif  // PS_INTERNAL_ASSIGN_OP_H_
